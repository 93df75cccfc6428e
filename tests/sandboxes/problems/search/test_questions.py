import json
import random
import re
from collections import Counter

from sandboxes.problems.search.answers import leading, without_measure
from sandboxes.problems.search.build import build
from sandboxes.problems.search.corpus import Corpus
from sandboxes.problems.search.drafts import BRIDGES, mentions, neighbours
from sandboxes.problems.search.env import K
from sandboxes.problems.search.questions import generate, split_of
from sandboxes.prompts import SHIPPED


def spec(problem):
    return json.loads(problem.spec)


def test_there_are_900_problems_a_third_of_them_held_out(problems):
    assert Counter(p.split for p in problems) == {"train": 600, "eval": 300}
    assert len({p.problem_id for p in problems}) == 900
    assert len({p.prompt for p in problems}) == 900


def test_the_same_build_gives_the_same_problems(problems):
    def rows(found):
        return [p.model_dump(exclude={"created_at"}) for p in found]

    assert rows(build()) == rows(problems)


def test_no_country_is_on_both_sides_of_the_split(problems):
    for problem in problems:
        countries = {step[1]["title"].split(" / ")[0] for step in spec(problem)["path"] if step[0] == "open"}
        asked = next(iter(countries)) if "bridge" in spec(problem)["template"] else spec(problem)["path"][1][1]["title"]
        assert split_of(asked.split(" / ")[0]) == problem.split
        assert split_of(spec(problem)["target"].split(" / ")[0]) == problem.split


def test_about_a_third_of_the_countries_are_held_out(shipped):
    held = sum(split_of(country) == "eval" for country in shipped.countries) / len(shipped.countries)
    assert 0.2 < held < 0.4


def test_everything_a_tiny_model_reads_is_short(problems):
    assert len(SHIPPED.texts["search.system.txt"]) <= 60
    assert max(len(p.prompt) for p in problems) <= 100
    assert max(len(form) for p in problems for form in spec(p)["accepted"]) <= 40


def test_the_query_and_the_fields_can_be_copied_out_of_the_question(problems):
    for problem in problems:
        (_, query), *_, (_, target), _ = spec(problem)["path"]
        asked = problem.prompt.lower()
        assert all(word in asked for word in query["query"].lower().split())
        assert target["title"].split(" / ")[1].lower() in asked


def test_a_question_does_not_hold_its_answer(problems):
    for problem in problems:
        assert not any(mentions(problem.prompt, form) for form in spec(problem)["accepted"])


def test_exactly_one_country_has_the_bridge_value(problems, shipped):
    for problem in problems:
        found = re.fullmatch(r"What is the .+ of the country whose (.+) is (.+)\?", problem.prompt)
        bridge = found and next((b for b in BRIDGES if b.lower() == found[1]), None)
        if bridge:
            values = [without_measure(leading(f.get(bridge, ""))) for f in shipped.countries.values()]
            assert values.count(found[2]) == 1


def test_the_oracle_finds_the_country_among_the_first_results(problems, shipped):
    for problem in problems:
        (_, query), (_, opened), *_ = spec(problem)["path"]
        found = [p.country for p in shipped.search(query["query"], K)]
        assert opened["title"].split(" / ")[0] in found


def test_questions_over_borders_are_the_harder_ones(problems):
    by_family = {"bridge": [], "border": []}
    for problem in problems:
        by_family[spec(problem)["template"].split("/")[0]].append(problem.difficulty)
    assert max(by_family["bridge"]) <= 0.4 < 0.6 <= min(by_family["border"])


def test_an_answer_that_many_countries_share_is_not_asked_for(problems, shipped):
    for problem in problems:
        target = shipped.find(spec(problem)["target"])
        answer = leading(target.text)
        shared = sum(leading(f.get(target.field, "")) == answer for f in shipped.countries.values())
        assert shared <= 0.1 * len(shipped.countries)


def test_border_lists_read_in_full_or_not_at_all():
    assert neighbours("Bolivia 1,212 km, Cote d'Ivoire 16.5 km") == {"Bolivia": 1212.0, "Cote d'Ivoire": 16.5}
    assert neighbours("Russia (northeast) 4,133 km, Nepal 1,389 km") == {}
    assert neighbours("none") == {}


def test_any_corpus_of_this_shape_gives_questions():
    draw = random.Random(1)
    names = ["".join(draw.choice("bdgklmnrst") + draw.choice("aeiou") for _ in range(4)).title() for _ in range(120)]
    corpus = Corpus(
        {
            name: {
                "Capital": f"Ca{name[::-1].lower()}",
                "Internet code": f".{name[:3].lower()}",
                "Area": f"{draw.randint(10, 10**6):,} sq km",
                "Border countries": ", ".join(f"{n} {draw.randint(1, 999)} km" for n in draw.sample(names, 2)),
            }
            for name in names
        },
        name="random",
    )
    problems = generate(corpus, 7, 90)
    assert len(problems) == 90
    assert {p.source for p in problems} == {"random"}
    assert {spec(p)["template"].split("/")[0] for p in problems} == {"bridge", "border"}
    assert generate(corpus, 8, 90) != problems


def test_a_corpus_with_too_little_gives_what_it_has(small):
    problems = generate(small, 0, 50)
    assert 0 < len(problems) < 50
    assert "Minlo" not in " ".join(p.prompt for p in problems)  # two countries share this capital

"""An exam: held-out problems and how they are played. Two versions that sat the same one can be compared pair by pair.

Its run in the lake has an id derived from the version, the problems drawn and everything that shapes their episodes, so
that an exam which was sat is found again and an interrupted one goes on.
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, DirectoryPath, Field

from lakehouse.planning import choose
from lakehouse.query import connect
from lakehouse.records import digest, dumps

MAX_LOST = 0.1  # of an exam's episodes; beyond that it is sat anew


class Exam(BaseModel):
    """What is asked, and how it is answered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    problems: dict[str, Annotated[int, Field(ge=1)]] = Field(
        default={"search": 64, "swe": 24},
        description="Held-out problems of each kind, or of a set such as search/debian.",
    )
    samples: int = Field(default=1, ge=1, description="Episodes per problem.")
    temperature: float = Field(default=1.0, ge=0, description="Sampling temperature of the model.")
    max_tokens: int = Field(default=96, ge=1, description="Tokens per model call.")
    max_turns: int = Field(default=6, ge=1, description="Model calls per episode.")
    max_difficulty: float = Field(default=1.0, ge=0, le=1, description="Only problems up to this difficulty.")
    seed: int = Field(default=0, description="Draws the problems, and the sampler's noise of each episode.")
    prompts: Annotated[DirectoryPath, AfterValidator(Path.resolve)] | None = Field(
        default=None, description="A folder with prompts of one's own in place of the shipped ones."
    )

    def drawn(self, lake: str | None) -> str:
        """A digest of the problems that it draws from this lake, in the editions of now, and of how they are played.

        NotEnoughProblems where the lake has too few.
        """
        problems = choose(lake, self.problems, split="eval", seed=self.seed, max_difficulty=self.max_difficulty)
        asked = sorted([one.problem_id, one.edition or ""] for one in problems)
        how = self.model_dump(include={"samples", "temperature", "max_tokens", "max_turns", "seed"})
        if self.prompts is not None:  # by content: a folder can be changed. Exams without one keep their digest
            how["prompts"] = {
                path.name: path.read_text(encoding="utf-8") for path in sorted(self.prompts.glob("*.txt"))
            }
        return digest(dumps({"problems": asked, **how}))[:16]


class Sat(BaseModel):
    """A run of an exam by one version. `complete`: every episode has landed, or was refused at the door."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    episodes: int  # that were to be played
    complete: bool


def sat(lake: str | None, name: str, version: int, drawn: str) -> Sat:
    """The run in which this version sits, or sat, the exam that was drawn.

    An attempt of which more than a tenth was lost to infrastructure is not it: the next one is, played or not.
    """
    attempt = 0
    with connect(lake) as connection:
        while True:
            run_id = "eval-" + digest(name, str(version), drawn, str(attempt))[:12]
            row = connection.execute(
                """
                select
                    count(*),
                    count(*) filter (episodes.episode_id is null and refused.episode_id is null),
                    count(*) filter (episodes.status in ('infra_error', 'cancelled'))
                from dispatches
                left join episodes using (episode_id)
                left join (select distinct episode_id from quarantine where table_name = 'episodes') as refused using (episode_id)
                where dispatches.run_id = $1
                """,
                [run_id],
            ).fetchone()
            episodes, left, lost = row or (0, 0, 0)
            if left or lost <= MAX_LOST * episodes:
                return Sat(run_id=run_id, episodes=episodes, complete=bool(episodes) and not left)
            attempt += 1

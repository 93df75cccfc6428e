"""What in a text is a secret or personal data, as the detectors see it."""

from collections.abc import Iterable

SHORTEST = 6  # characters: what is shorter stands in too many places by chance to be replaced wherever it stands
APART = "\n\0\n"  # between texts that are looked through together; no detector finds anything across it


class DetectorsMissing(RuntimeError):
    """The detectors cannot run, so nothing may be written."""


def found(text: str) -> dict[str, str]:
    """Each distinct secret or piece of personal data in the text, with the name of its detector.

    DetectorsMissing where the libraries cannot be loaded. They are loaded with the first text: a process that lands
    nothing which is looked through never waits for them.
    """
    try:
        from lakehouse.privacy.personal import personal  # noqa: PLC0415
        from lakehouse.privacy.secrets import secrets  # noqa: PLC0415
    except ImportError as error:
        raise DetectorsMissing(
            f"the detectors of secrets and personal data cannot be loaded ({error}), so nothing was written: "
            "install Lakeloop's requirements again, or declare the source as allowed with `lakeloop sources declare`"
        ) from error
    values: dict[str, str] = {}
    for detector, value in (*secrets(text), *personal(text)):
        if len(value) >= SHORTEST:
            values.setdefault(value, detector)
    return values


class Finder:
    """Looks through each distinct text once. Texts are mostly short, so new ones are looked through together."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def __call__(self, texts: Iterable[str]) -> dict[str, str]:
        """What is in any of the texts."""
        wanted = {text for text in texts if len(text) >= SHORTEST}
        new = [text for text in wanted if text not in self._known]
        values = found(APART.join(new)) if new else {}
        for text in new:
            self._known[text] = {value: detector for value, detector in values.items() if value in text}
        return {value: detector for text in wanted for value, detector in self._known[text].items()}

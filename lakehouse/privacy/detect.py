"""What in a text is a secret or personal data, as the detectors see it."""

SHORTEST = 6  # characters: what is shorter stands in too many places by chance to be replaced wherever it stands


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

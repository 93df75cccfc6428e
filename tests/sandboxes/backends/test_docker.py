"""What only the Docker backend does: images, containers, labels."""

import time

import docker.errors
import pytest

from sandboxes.backends import docker as backend_module
from sandboxes.backends import images
from sandboxes.backends.base import BoxSpec
from sandboxes.backends.docker import LABEL, LEASE_LABEL, Docker

pytestmark = pytest.mark.docker


def test_the_image_is_imported_once(client):
    said: list[str] = []
    name = images.docker_image(client)
    identity = client.images.get(name).id
    assert images.docker_image(client, said.append) == name
    assert (client.images.get(name).id, said) == (identity, [])


async def test_a_box_is_labelled_and_its_container_gone_after(client):
    box = await Docker().start(BoxSpec(labels={"episode": "e1"}))
    [container] = client.containers.list(filters={"label": "episode=e1"})
    assert container.labels[LABEL] == "1"
    assert 800 < int(container.labels[LEASE_LABEL]) - time.time() < 901
    await box.close()
    with pytest.raises(docker.errors.NotFound):
        client.containers.get(container.id)


def test_reaping_removes_containers_past_their_lease_and_no_others(client):
    image = images.docker_image(client)
    now = int(time.time())
    labels = {
        "late": {LABEL: "1", LEASE_LABEL: str(now - 5)},
        "early": {LABEL: "1", LEASE_LABEL: str(now + 500)},
        "foreign": {LEASE_LABEL: str(now - 5)},
    }
    made = {name: client.containers.create(image, "true", labels=label) for name, label in labels.items()}
    try:
        assert backend_module.reap(client, now) == 1
        with pytest.raises(docker.errors.NotFound):
            client.containers.get(made.pop("late").id)
        for container in made.values():
            client.containers.get(container.id)
    finally:
        for container in made.values():
            container.remove(force=True)

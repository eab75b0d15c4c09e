"""The service on a Ray cluster of two nodes, all on this machine: the same answers, and none lost when a replica is killed."""

import asyncio
import itertools
import json
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import import_module

import httpx
import pytest
import yaml

from tests.service.several import ROOT, several  # isort: skip; first, as Ray reads the environment when it is imported

from ray.exceptions import RayActorError
from ray.serve._private.api import call_user_app_builder_with_args_if_necessary

from compute import functions, measures, precompute
from compute.errors import BadInput, Busy, Refused
from compute.measures.job import Job
from compute.service import client, cluster, openai
from compute.service.schema import Progress
from tests.service import toys

PIN = re.search(r"^ray\[serve\]==(\S+)$", (ROOT / "requirements-cluster.txt").read_text(), re.MULTILINE)[1]
WRITE = {"model": "mini-64", "prompt": "小明把苹果给了", "n": 8, "temperature": 1.0, "max_tokens": 100}


@pytest.fixture(scope="module")
def two():
    with several() as running:
        yield running


@pytest.fixture
def remote(two, use):
    use(two.url)
    return two


def post(two, path, body, learner=""):
    return httpx.post(f"{two.url}{path}", json=body, headers={"X-Learner": learner} if learner else {}, trust_env=False, timeout=60)


def engine_of(two, learner: str) -> int:
    """The process of the learner's engine."""
    return httpx.get(f"{two.url}/healthz", headers={"X-Learner": learner}, trust_env=False, timeout=60).json()["pid"]


def events(answer: httpx.Response):
    """Of a completion's stream."""
    for line in answer.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def texts(pieces) -> dict[int, str]:
    found = {}
    for choice in (choice for piece in pieces for choice in piece["choices"]):
        found[choice["index"]] = found.get(choice["index"], "") + choice["text"]
    return found


@pytest.mark.parametrize("function, params", [
    ("toy.add", {"a": 1, "b": 2, "seed": 7}), ("toy.nested", {"box": {"width": 1, "inside": {"width": 2}}}),
    ("next.logits", {"models": ["mini-64"]}), ("sampling.texts", {"model": "mini-64", "new": 4, "count": 2, "seed": 5}),
])  # fmt: skip
def test_the_same_results_as_in_one_process(remote, use, function, params):
    """Catches a value that is rounded, reordered or drawn otherwise on its way through the cluster."""
    there = client.call(function, params)
    use("embedded")
    here = client.call(function, params)
    assert there.value == here.value and there.conditions.seed == here.conditions.seed


def test_the_same_errors_and_progress(remote):
    """Catches an error that becomes Ray's, and progress that is held back until the end."""
    for function, params, kind in (("toy.refuses", {}, Refused), ("toy.add", {}, BadInput), ("toy.refuses_late", {}, BadInput)):
        with pytest.raises(kind):
            client.call(function, params)
    began, arrived = time.monotonic(), []
    *progress, result = ((arrived.append(time.monotonic() - began), event)[1] for event in client.run("toy.slow", {"steps": 20}))
    assert [p.note for p in progress if p.note] == [f"step {n}" for n in range(1, 21)] and result.value == {"steps": 20}
    assert arrived[0] < 0.6 * arrived[-1]
    refused = httpx.get(f"{remote.url}/healthz", headers={"Host": "elsewhere.example"}, trust_env=False)
    assert refused.status_code == 403, "a name that nobody allowed"
    unknown = post(remote, "/v1/completions", {"model": "nobody", "prompt": "a"})
    assert unknown.status_code == 404 and unknown.json()["error"]["code"] == "model_not_found"


def test_who_leaves_or_deletes_ends_the_run_wherever_it_is(remote):
    """Catches work that goes on for nobody, and a run that only one of the replicas can end."""
    for leave in (True, False) * 2:
        with httpx.stream("POST", f"{remote.url}/run/toy.slow", json={"steps": 1000}, trust_env=False) as answer:
            lines = answer.iter_lines()
            next(lines)
            run = f"{remote.url}/run/{answer.headers['X-Run-Id']}"
            if not leave:
                assert httpx.delete(run, trust_env=False).status_code == 204
                assert '"cancelled"' in list(lines)[-1]
        until = time.monotonic() + 10
        while httpx.delete(run, trust_env=False).status_code == 204:  # the first may find it before it has noticed
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_learner_stays_with_one_engine(remote):
    """Catches a live page that sees its texts in every second answer, and a cancel that reaches another engine."""
    assert len({engine_of(remote, f"learner {n}") for n in range(12)}) == 2, "both are used"
    sent = client.send("春风", max_tokens=200, temperature=10, n=4, model="mini-64", learner="ming")  # so hot that few end by themselves
    assert len({engine_of(remote, "ming") for _ in range(8)}) == 1
    for _ in range(8):
        seen = client.live(model="mini-64", learner="ming")
        assert [text["request"] for text in seen["texts"]] == [sent["request"]] * 4
    assert not client.live(model="mini-64", learner="hong")["texts"]
    client.cancel_live(sent["request"], learner="ming")
    assert "cancelled" in {text["finish"] for text in client.live(model="mini-64", learner="ming")["texts"]}


def test_a_killed_replica_loses_no_call(remote):
    """Catches a call that ends with its replica, and an answer that is told twice."""
    begun = threading.Barrier(9)

    def call(n: int) -> tuple[int, list]:
        heard = []
        with closing(client.run("toy.grows", {"steps": 20 + n % 3, "step_seconds": 0.02}, learner=f"learner {n}")) as running:
            for event in running:
                heard.append(event)
                if len(heard) == 1 and n < 8:
                    begun.wait(60)
        return n, heard

    before = remote.replicas("functions")
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(call, n) for n in range(24)]
        begun.wait(60)  # eight are at it
        killed = remote.kill("functions")
        for n, heard in (answer.result(120) for answer in answers):
            *progress, result = heard
            assert len(result.value["done"]) == 20 + n % 3 and all(isinstance(event, Progress) for event in progress)
    assert killed in before and killed not in remote.replicas("functions")


def test_a_killed_door_loses_no_call_of_ours(remote):
    """Catches a page that takes a stored result because the process died that only passes answers on."""
    with closing(client.run("toy.slow", {"steps": 40})) as running:
        heard = list(itertools.islice(running, 3))
        for _ in remote.replicas("door"):
            remote.kill("door")
        *progress, result = [*heard, *running]
    assert result.value == {"steps": 40} and len(progress) > 40, "from the beginning"


def test_a_killed_engine_loses_no_token_of_a_stream(remote):
    """Catches a text that stops, begins again or goes on otherwise when its engine dies."""
    asked, began = WRITE | {"stream": True}, engine_of(remote, "ming")
    with httpx.stream("POST", f"{remote.url}/v1/completions", json=asked, headers={"X-Learner": "ming"}, trust_env=False, timeout=120) as answer:
        told = events(answer)
        before = list(itertools.islice(told, 16))
        os.kill(began, signal.SIGKILL)
        heard = [*before, *told]
    assert engine_of(remote, "ming") != began
    assert len({(event["id"], event["created"], event["seed"]) for event in heard}) == 1
    whole = post(remote, "/v1/completions", WRITE | {"seed": heard[0]["seed"]}).json()
    assert texts(heard) == texts([whole]) and len(heard) > 3 * len(before), "most of it came after the engine's end"
    assert [event["choices"][0]["finish_reason"] for event in heard].count(None) == len(heard) - 8


def test_replicas_that_are_taken_away_end_their_calls_first(remote):
    """Catches calls that are cut, or begun again, where the cluster gets smaller. The last of those that need the service."""
    begun = threading.Barrier(5)

    def call(n: int) -> list:
        with closing(client.run("toy.slow", {"steps": 30})) as running:
            heard = [next(running)]
            begun.wait(60)
            return [*heard, *running]

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(call, n) for n in range(4)]
        begun.wait(60)
        remote.take_away()
        assert not remote.replicas("functions")
        for *progress, result in (answer.result(60) for answer in answers):
            fractions = [event.fraction for event in progress]
            assert result.value == {"steps": 30} and fractions == sorted(fractions), "once, from beginning to end"


# ---- without a cluster


def test_what_was_told_is_not_told_again():
    """Catches tokens that are repeated or left out when the second engine sends them in other portions or another order."""
    def portion(id, *parts):
        said = (openai.said({"id": id, "created": id, "seed": 9, "choices": [{"index": index, "text": text}]}) for index, text in parts)
        return {"type": "http.response.body", "body": b"".join(said), "more_body": True}

    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", openai.EVENT_STREAM.encode())]}
    told, out = cluster.Told(), []
    assert told.continued(b'{"model": "m"}') == b'{"model": "m"}'
    for message in (start, portion(1, (0, "a"), (1, "x")), portion(1, (0, "b"))):
        out += told.new(message)
    assert json.loads(told.continued(b'{"model": "m"}')) == {"model": "m", "seed": 9}, "the seed that was drawn"
    for message in (start, portion(2, (1, "x")), portion(2, (1, "y"), (0, "a"), (0, "b"), (0, "c"))):
        out += told.new(message)
    assert [message["type"] for message in out].count("http.response.start") == 1
    said = b"".join(message.get("body", b"") for message in out).decode().splitlines()
    found = [json.loads(line.removeprefix("data: ")) for line in said if line]
    assert texts(found) == {0: "abc", 1: "xy"} and {event["id"] for event in found} == {1}


def test_a_whole_answer_is_not_asked_for_again():
    """Catches an end that is told twice, where a replica dies between the last word and its own end."""
    class Dying:
        asked = 0

        def remote(self, scope, body):
            self.asked += 1
            return self

        async def __aiter__(self):
            yield {"type": "http.response.start", "status": 200, "headers": []}
            yield {"type": "http.response.body", "body": b"all"}
            raise RayActorError

        def cancel(self):
            pass

    async def heard() -> list:
        return [message async for message in cluster.Door(None, None).told(dying, {"path": "/run/toy.add"}, b"{}")]

    dying = Dying()
    assert [message["type"] for message in asyncio.run(heard())] == ["http.response.start", "http.response.body"] and dying.asked == 1


def test_a_refusal_in_the_middle_of_a_completion_is_its_last_event():
    """Catches JSON that no client of a stream can read, where the replica that was to go on is full."""
    told, refused = cluster.Told(), openai.refusal(Busy(3, 2.0))
    told.new({"type": "http.response.start", "status": 200, "headers": [(b"content-type", openai.EVENT_STREAM.encode())]})
    told.new({"type": "http.response.body", "body": openai.said({"id": 1, "created": 1, "seed": 9, "choices": []}), "more_body": True})
    told.continued(b"{}")
    assert not told.new({"type": "http.response.start", "status": refused.status_code, "headers": refused.raw_headers}) and not told.whole
    (last,) = told.new({"type": "http.response.body", "body": refused.body})
    event, _, rest = last["body"].partition(b"\n\n")
    assert json.loads(event.removeprefix(b"data: "))["error"]["code"] == "overloaded" and not rest and told.whole


@pytest.mark.parametrize("path, words", [("/run/toy.add", '"code":"unavailable"'), ("/v1/completions", '"unavailable"')])
def test_a_call_that_ends_every_replica_is_told_so(path, words):
    """Catches a connection that is closed without a word, and a call that is tried for ever."""
    start, body = cluster.Told().broken_off(path)
    assert start["status"] == 503 and words in body["body"].decode()


def test_functions_that_ask_the_engine_are_sent_there():
    """Catches a function that shows the engine everybody shares, and is computed beside another one that nobody uses."""
    def asks(function) -> bool:
        module = import_module(function.target.split(":")[0])
        return hasattr(module, "running")

    assert {name for name, function in functions.TABLE.items() if function.where == "service" and asks(function)} == set(cluster.ON_THE_ENGINE)


@pytest.mark.parametrize("file", ["serve.yaml", "kuberay.yaml"])
def test_what_is_deployed_is_there(file):
    """Catches a manifest that is no YAML, names what cannot be imported, sets what does not exist, or runs another Ray than is tested."""
    (manifest,) = yaml.safe_load_all((ROOT / "deploy" / file).read_text(encoding="utf-8"))
    if manifest.get("kind") == "RayService":
        spec = manifest["spec"]
        assert spec["rayClusterConfig"]["rayVersion"] == PIN and spec["rayClusterConfig"]["authOptions"] == {"mode": "token"}
        manifest = yaml.safe_load(spec["serveConfigV2"])
        groups = [spec["rayClusterConfig"]["headGroupSpec"], *spec["rayClusterConfig"]["workerGroupSpecs"]]
        containers = [container for group in groups for container in group["template"]["spec"]["containers"]]
        assert containers and all({"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"] for container in containers)
    (application,) = manifest["applications"]
    module, name = application["import_path"].split(":")
    built = call_user_app_builder_with_args_if_necessary(getattr(import_module(module), name), application["args"])
    assert built._bound_deployment.name == "door"
    settings = cluster.Settings(**application["args"])
    assert settings.address.endswith(f":{manifest['http_options']['port']}")


# ---- precompute --ray


def test_precompute_on_a_cluster_writes_the_same_file(two, tmp_path, monkeypatch):
    """Catches values that change on the way from a worker, jobs that are lost, and jobs that were made here after all."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    asked = dict(only="batching.requests.count", say=lambda line: None)
    assert precompute.precompute(path=tmp_path / "here" / "precomputed.json", **asked) == []
    run = precompute.on_ray()
    monkeypatch.setattr(measures, "run", lambda *args: pytest.fail("made here"))
    assert precompute.precompute(path=tmp_path / "far" / "precomputed.json", run=run, **asked) == []
    here, far = ((tmp_path / name / "precomputed.json").read_bytes() for name in ("here", "far"))
    assert here == far and b"batching.requests.count" in here


def test_a_job_whose_process_dies_is_begun_again_and_the_others_go_on(two, tmp_path, monkeypatch):
    """Catches a traceback for a process that was killed, for want of memory say, and the jobs behind it lost with it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(precompute, "made_or_not", toys.made_or_dead)
    monkeypatch.setattr(measures, "jobs", lambda: [Job("toy", {"name": n, "folder": str(tmp_path)}, (f"toy.{n}",)) for n in ("always", "once", "never")])
    path = tmp_path / "data" / "precomputed.json"
    (failed,) = precompute.precompute(path=path, say=lambda line: None, run=precompute.on_ray())
    assert failed.startswith("toy.always: ") and f"{precompute.RETRIES} more did (WorkerCrashedError)" in failed
    assert set(precompute.stored(path)) == {"toy.once", "toy.never"} and len(list(tmp_path.glob("always.*"))) == 1 + precompute.RETRIES


def test_a_job_for_which_no_machine_has_the_cores_is_refused(two, monkeypatch):
    """Catches a command that waits for ever for a machine that the cluster does not have."""
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    with pytest.raises(BadInput, match="OMP_NUM_THREADS = 64.*so many cores"):
        precompute.on_ray()


def test_without_ray_one_sentence_says_what_to_install(monkeypatch):
    """Catches a traceback for a package that is optional."""
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(BadInput, match="requirements-cluster.lock"):
        precompute.on_ray()

"""What the programs of this folder have in common: processes that do not outlive them, and a server over HTTP."""
import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
NODE = HERE / "node_modules" / ".bin" / "node"
LISTEN_SECONDS = 30    # a server must listen within


class Failure(Exception):
    """Why a run failed, in one line."""


class Processes:
    """Every process we started, so that none of them outlives us."""

    def __init__(self):
        self.lock = threading.Lock()
        self.live = set()
        self.closing = False

    def start(self, argv, **kwargs):
        with self.lock:
            if self.closing:
                raise Failure("interrupted")
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True, **kwargs)
            self.live.add(process)
            return process

    def end(self, process):
        """Kills what is left of the process's group and reaps the process."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()
        with self.lock:
            self.live.discard(process)

    def end_all(self):
        with self.lock:
            self.closing = True
            left = list(self.live)
        for process in left:
            self.end(process)


PROCESSES = Processes()
PORTS_TAKEN, PORTS_LOCK = set(), threading.Lock()


def free_port():
    """A port that was free a moment ago and that no other run of ours was given."""
    with PORTS_LOCK:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            if port not in PORTS_TAKEN:
                PORTS_TAKEN.add(port)
                return port


class HttpServer:
    """A server with `--http`, from its `listening on` line until the end of the block."""

    def __init__(self, argv, log_path):
        self.argv, self.log_path = argv, log_path
        self.url = None
        self.settled = threading.Event()      # it listens, or its stderr is closed

    def _read(self, stream):
        with open(self.log_path, "w") as log:
            for raw in stream:
                line = raw.decode(errors="replace")
                log.write(line)
                log.flush()
                found = re.search(r"listening on (http://\S+)", line)
                if found and self.url is None:
                    self.url = found.group(1)
                    self.settled.set()
        self.settled.set()

    def __enter__(self):
        self.process = PROCESSES.start(self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self.reader.start()
        self.settled.wait(LISTEN_SECONDS)
        if self.url is None:
            self._stop()
            code = self.process.returncode
            raise Failure(f"the server said nothing of listening within {LISTEN_SECONDS} s" if code == -signal.SIGKILL
                          else f"the server ended before it listened ({ended(code)})")
        return self

    def died(self):
        """Why the server is no longer there, or None."""
        code = self.process.poll()
        return None if code is None else f"the server ended while its client ran ({ended(code)})"

    def _stop(self):
        PROCESSES.end(self.process)
        self.reader.join(5)

    def __exit__(self, *_):
        self._stop()


def environment():
    """Ours, without what would change what a program does or send it through a proxy."""
    changes = re.compile(r"(NODE_OPTIONS|PYTHONPATH|PYTHONHOME)$")
    kept = {k: v for k, v in os.environ.items() if not changes.match(k) and not k.lower().endswith("_proxy")}
    return {**kept, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}


def ended(code):
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def heed_signals():
    """SIGTERM and SIGHUP end us as ctrl-c does, so that nothing stays behind."""
    def interrupted(number, _frame):
        raise KeyboardInterrupt(number)
    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGHUP, interrupted)

"""The embedded servers: restarts, crashes, leftovers, and who may use a directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil
import psycopg
import pytest
import redis

from wheel_timer.embedded import DataDirectory, EmbeddedPostgres, EmbeddedRedis, EmbeddedServer
from wheel_timer.errors import StartRefused

# A process that starts both servers, says their pids and its own watchdogs', and waits.
OWNER: Final = """
import pathlib, sys
from wheel_timer.embedded import DataDirectory, EmbeddedPostgres, EmbeddedRedis
with DataDirectory(pathlib.Path(sys.argv[1])) as directory:
    servers = [EmbeddedPostgres(directory), EmbeddedRedis(directory)]
    for server in servers:
        server.start()
    for server in servers:
        server.wait_ready(60)
    print(*(server.process.pid for server in servers), flush=True)
    sys.stdin.read()
"""


class Owner:
    """A process that runs both servers in `directory`, for a test to kill."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.servers = [psutil.Process(int(pid)) for pid in self.process.stdout.readline().split()]

    def kill(self, *, watchdogs_too: bool = False) -> None:
        """kill -9, as the kernel does when memory is short."""
        if watchdogs_too:
            for child in psutil.Process(self.process.pid).children():
                if child.name() == "sh":
                    child.kill()
        with self.process:
            self.process.kill()


@pytest.fixture
def data(own_directory: DataDirectory) -> Path:
    """A directory that nobody uses yet."""
    return own_directory.path / "data"


@pytest.fixture
def servers(
    own_postgres: EmbeddedPostgres, own_redis: EmbeddedRedis
) -> tuple[EmbeddedPostgres, EmbeddedRedis]:
    return own_postgres, own_redis


def start(*servers: EmbeddedServer) -> None:
    for server in servers:
        server.start()
    for server in servers:
        server.wait_ready(60)


def write(postgres: EmbeddedPostgres, cache: EmbeddedRedis) -> None:
    """Leave a mark in each."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE mark AS SELECT 42 AS value")
    with redis.Redis.from_url(cache.url) as client:
        client.set("mark", "42")


def marks(postgres: EmbeddedPostgres, cache: EmbeddedRedis) -> list[object]:
    with psycopg.connect(postgres.url) as connection, redis.Redis.from_url(cache.url) as client:
        row = connection.execute("SELECT value FROM mark").fetchone()
        return [row, client.get("mark")]


def test_what_is_written_survives_a_restart_under_the_same_url(
    servers: tuple[EmbeddedPostgres, EmbeddedRedis],
) -> None:
    postgres, cache = servers
    urls = postgres.url, cache.url
    write(*servers)
    for server in servers:
        server.stop()
        assert not server.is_running()
    start(*servers)
    assert marks(*servers) == [(42,), b"42"]
    assert (postgres.url, cache.url) == urls


def test_a_killed_server_starts_again_with_what_was_committed(
    servers: tuple[EmbeddedPostgres, EmbeddedRedis],
) -> None:
    write(*servers)
    for server in servers:
        assert server.process is not None
        server.process.kill()
        server.process.wait()
    start(*servers)
    assert marks(*servers)[0] == (42,)


def test_postgres_is_durable_and_has_room_for_the_locks_of_all_partitions(
    servers: tuple[EmbeddedPostgres, EmbeddedRedis],
) -> None:
    with psycopg.connect(servers[0].url) as connection:
        shown = {
            name: connection.execute(f"SHOW {name}").fetchone()
            for name in (
                *("fsync", "synchronous_commit", "max_locks_per_transaction", "jit"),
                "wal_segment_size",
            )
        }
    assert shown == {
        "fsync": ("on",),
        "synchronous_commit": ("on",),
        "max_locks_per_transaction": ("256",),
        "jit": ("off",),
        "wal_segment_size": ("4MB",),
    }
    with redis.Redis.from_url(servers[1].url) as client:
        names = ("appendonly", "appendfsync", "maxmemory-policy")
        assert {name: client.config_get(name)[name] for name in names} == {
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
        }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another account to give them")
def test_as_root_the_servers_run_under_another_account(
    servers: tuple[EmbeddedPostgres, EmbeddedRedis],
) -> None:
    for server in servers:
        assert server.process is not None
        assert psutil.Process(server.process.pid).uids().effective != 0


def test_only_their_own_account_can_reach_the_sockets_and_files(
    servers: tuple[EmbeddedPostgres, EmbeddedRedis],
) -> None:
    for path in (servers[0].data, servers[1].data, servers[0].directory.sockets()):
        assert path.stat().st_mode & 0o077 == 0


def test_a_second_user_of_a_directory_gets_one_line(
    own_directory: DataDirectory,
) -> None:
    with pytest.raises(StartRefused) as refused:
        DataDirectory(own_directory.path).lock()
    assert str(refused.value) == (
        f"another wheel-timer (process {os.getpid()}) runs in {own_directory.path}: "
        "stop it, or name another directory with --data-dir"
    )


def test_the_servers_of_a_killed_process_are_shut_down_in_order(data: Path) -> None:
    owner = Owner(data)
    owner.kill()
    psutil.wait_procs(owner.servers, timeout=10)
    assert not any(is_alive(server) for server in owner.servers)
    assert not (data / "postgres" / "postmaster.pid").exists()
    assert "User requested shutdown" in (data / "redis.log").read_text()


def test_servers_that_outlived_their_process_are_stopped_by_the_next(data: Path) -> None:
    owner = Owner(data)
    owner.kill(watchdogs_too=True)
    assert all(is_alive(server) for server in owner.servers)
    with DataDirectory(data) as directory:
        pair = EmbeddedPostgres(directory), EmbeddedRedis(directory)
        try:
            start(*pair)
            assert not any(is_alive(server) for server in owner.servers)
            for server in pair:
                assert server.is_running()
        finally:
            for server in pair:
                server.stop()


def test_a_stale_pid_file_with_a_number_that_lives_again_is_no_obstacle(
    servers: tuple[EmbeddedPostgres, EmbeddedRedis],
) -> None:
    for server in servers:
        assert server.process is not None
        server.process.kill()
        server.process.wait()
        lines = server.pid_file.read_text().split("\n")
        server.pid_file.write_text("\n".join([str(os.getppid()), *lines[1:]]))
    start(*servers)
    assert all(server.is_running() for server in servers)


def test_a_cluster_of_another_version_gets_one_line(
    servers: tuple[EmbeddedPostgres, EmbeddedRedis],
) -> None:
    postgres, _ = servers
    postgres.stop()
    version = postgres.data / "PG_VERSION"
    version.write_text("14\n")
    with pytest.raises(StartRefused, match=r"was made by Postgres 14, this is 18"):
        postgres.start()
    version.write_text("18\n")


def test_a_server_that_cannot_start_says_why_in_one_line(
    servers: tuple[EmbeddedPostgres, EmbeddedRedis],
) -> None:
    postgres, cache = servers
    postgres.stop()
    (postgres.data / "global" / "pg_control").rename(postgres.data / "gone")
    postgres.start()
    with pytest.raises(StartRefused, match=r"did not start: .*pg_control") as refused:
        postgres.wait_ready(20)
    assert "\n" not in str(refused.value)
    cache.stop()
    (cache.data / "appendonly.aof").write_text("not an append-only file\n")
    cache.start()
    with pytest.raises(StartRefused, match="may be deleted: the sweep finds in Postgres"):
        cache.wait_ready(20)


def test_an_interrupted_initdb_is_begun_anew(data: Path) -> None:
    unfinished = data / "postgres.unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    with DataDirectory(data) as directory:
        postgres = EmbeddedPostgres(directory)
        try:
            start(postgres)
        finally:
            postgres.stop()


def test_a_path_too_long_for_a_socket_puts_it_elsewhere(data: Path) -> None:
    deep = data / ("d" * 60) / ("e" * 60)
    with DataDirectory(deep) as directory:
        cache = EmbeddedRedis(directory)
        try:
            start(cache)
            assert directory.sockets().parent != deep
            with redis.Redis.from_url(cache.url) as client:
                assert client.ping()
        finally:
            cache.stop()
            directory.sockets().rmdir()


def test_a_directory_that_cannot_be_used_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartRefused, match="cannot be used: Not a directory"):
        DataDirectory(tmp_path / "file" / "data").lock()


def test_without_the_packages_the_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with DataDirectory(tmp_path) as directory:
        with pytest.raises(StartRefused, match="pip install 'wheel-timer"):
            EmbeddedPostgres(directory)
        with pytest.raises(StartRefused, match="no redis-server found"):
            EmbeddedRedis(directory)


def test_elsewhere_than_linux_and_macos_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(StartRefused, match="Linux and macOS only"):
        DataDirectory(tmp_path)


def test_a_ctrl_c_in_the_terminal_does_not_reach_the_servers(
    servers: tuple[EmbeddedPostgres, EmbeddedRedis],
) -> None:
    for server in servers:
        assert server.process is not None
        assert os.getsid(server.process.pid) != os.getsid(0)
        assert server.stop_signals[-1][0] == signal.SIGKILL


def is_alive(process: psutil.Process) -> bool:
    """Running, and not a zombie that nobody reaps."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False

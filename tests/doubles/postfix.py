"""A real Postfix for tests: a private instance in a temporary folder, with TLS and SASL, on free ports.

It takes mail only from those who signed in, and passes it on to a sink of ours that keeps what arrives.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme

from doubles import engines

USER, PASSWORD = "shop@relay.example", "a-password-that-no-log-may-show"
_DAEMONS = Path("/usr/lib/postfix/sbin")

# service, type, private, wake-up, at most so many, program
_SERVICES = """\
pickup    unix n 60    1 pickup
cleanup   unix n -     0 cleanup
qmgr      unix n 300   1 qmgr
rewrite   unix - -     - trivial-rewrite
bounce    unix - -     0 bounce
defer     unix - -     0 bounce
trace     unix - -     0 bounce
tlsmgr    unix - 1000? 1 tlsmgr
proxymap  unix - -     - proxymap
smtp      unix - -     - smtp
error     unix - -     - error
retry     unix - -     - error
discard   unix - -     - discard
anvil     unix - -     1 anvil
scache    unix - -     1 scache
postlog   unix-dgram n - 1 postlogd
"""


@dataclass(frozen=True)
class Postfix:
    """A running one."""

    port: int
    tls_port: int
    """TLS from the first byte."""
    trust: ssl.SSLContext
    """Trusts its certificate, for 127.0.0.1."""
    authority: Path
    """The same as a file."""
    log: Path


@contextlib.contextmanager
def postfix(relay_port: int) -> Iterator[Postfix]:
    """`relay_port`: where it passes on what it took."""
    command = engines.program("postfix", package="postfix")
    saslpasswd = engines.program("saslpasswd2", package="sasl2-bin and libsasl2-modules")
    if os.geteuid() != 0:
        engines.missing("a private Postfix can be started by root only")
    folder = Path(tempfile.mkdtemp(prefix="staffetta-postfix-"))
    try:
        folder.chmod(0o755)  # its daemons run as a user of their own
        made = _settle_in(folder, relay_port, saslpasswd)
        conf = str(folder / "conf")
        subprocess.run([command, "-c", conf, "start"], check=True, capture_output=True)
        try:
            engines.until_listening(made.port)
            yield made
        finally:
            subprocess.run([command, "-c", conf, "stop"], check=False, capture_output=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _settle_in(folder: Path, relay_port: int, saslpasswd: str) -> Postfix:
    port, tls_port = engines.free_port(), engines.free_port()
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    authority.cert_pem.write_to_path(folder / "authority.pem")
    conf = folder / "conf"
    for each in (conf / "sasl", folder / "queue", folder / "data"):
        each.mkdir(parents=True)
    shutil.chown(folder / "data", "postfix")
    (conf / "main.cf").write_text(_main(folder, relay_port), encoding="utf-8")
    (conf / "master.cf").write_text(_master(port, tls_port), encoding="utf-8")
    (conf / "sasl" / "smtpd.conf").write_text(
        "pwcheck_method: auxprop\nauxprop_plugin: sasldb\nmech_list: PLAIN LOGIN\n"
        f"sasldb_path: {folder}/sasldb2\n",
        encoding="utf-8",
    )
    user, _, realm = USER.partition("@")
    subprocess.run(
        [saslpasswd, "-p", "-c", "-f", str(folder / "sasldb2"), "-u", realm, user],
        input=PASSWORD.encode(), check=True, capture_output=True,
    )  # fmt: skip
    shutil.chown(folder / "sasldb2", "postfix")
    return Postfix(
        port=port, tls_port=tls_port, trust=trust, authority=folder / "authority.pem", log=folder / "log"
    )


def _main(folder: Path, relay_port: int) -> str:
    return f"""\
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
daemon_directory = {_DAEMONS}
command_directory = /usr/sbin
mail_owner = postfix
setgid_group = postdrop
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = relay.example
mydestination =
mynetworks =
alias_maps =
alias_database =
local_recipient_maps =
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
relayhost = [127.0.0.1]:{relay_port}
smtp_tls_security_level = none
smtpd_peername_lookup = no
smtpd_tls_security_level = may
smtpd_tls_auth_only = yes
smtpd_tls_chain_files = {folder}/server.pem
smtpd_sasl_auth_enable = yes
smtpd_sasl_local_domain = relay.example
cyrus_sasl_config_path = {folder}/conf/sasl
smtpd_relay_restrictions = permit_sasl_authenticated, reject_unauth_destination
smtpd_error_sleep_time = 0
smtpd_client_connection_count_limit = 0
"""


def _master(port: int, tls_port: int) -> str:
    rows = [
        f"127.0.0.1:{port} inet n - n - - smtpd",
        f"127.0.0.1:{tls_port} inet n - n - - smtpd -o smtpd_tls_wrappermode=yes",
    ]
    for line in _SERVICES.splitlines():
        name, kind, private, wake, most, program = line.split()
        rows.append(f"{name} {kind} {private} - n {wake} {most} {program}")
    return "\n".join(rows) + "\n"

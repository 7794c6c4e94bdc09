"""No payload makes Staffetta call into a private network, however the address is written."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail.private_addresses import why_closed

CLOSED = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.254.0.0", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.255",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.255", "192.0.2.1", "192.88.99.1",
    "192.168.10.65", "198.18.0.0", "198.19.255.255", "198.51.100.65", "203.0.113.6", "224.0.0.1", "239.255.255.255",
    "240.0.0.1", "250.10.20.30", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::7f00:1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0.0.0.1",
    "::ffff:169.254.169.254", "::ffff:0:7f00:1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "fc00::1", "fd00:ec2::254",
    "ff02::1", "ff0e::1", "100::1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2001::1", "2001:10::1",
    "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1", "3ffe::1", "3fff::1", "3fff:fff::1", "5f00::1",
    "4000::1", "8000::1",
]  # fmt: skip

OPEN = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
    "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.1", "192.167.255.255",
    "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
    "::ffff:8.8.8.8", "2001:4860:4860::8888", "2606:4700:4700::1111", "2a00:1450:4001::1",
]  # fmt: skip


@pytest.mark.parametrize("address", CLOSED)
def test_addresses_that_lead_back_inside_are_closed(address: str) -> None:
    assert why_closed(address)


@pytest.mark.parametrize("address", OPEN)
def test_public_addresses_are_open(address: str) -> None:
    assert why_closed(address) is None


@pytest.mark.parametrize(
    "text", ["", "localhost", "127.1", "0x7f000001", "2130706433", "017700000001", "1.1.1.1 "]
)
def test_what_is_no_address_is_closed(text: str) -> None:
    """The guard is asked about addresses that were looked up; anything else is a mistake, and stays shut."""
    assert why_closed(text) == "not an address"


@given(st.ip_addresses(v=4))
def test_an_address_inside_ipv6_is_judged_as_itself(address: ipaddress.IPv4Address) -> None:
    """A mapped address reaches the IPv4 host: another answer for it would be a way around."""
    assert (why_closed(f"::ffff:{address}") is None) == (why_closed(str(address)) is None)


@given(st.ip_addresses())
def test_nothing_that_python_itself_calls_private_is_open(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if why_closed(str(address)) is None:
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        assert not address.is_private
        assert not address.is_multicast
        assert not address.is_reserved
        assert not address.is_loopback
        assert not address.is_link_local

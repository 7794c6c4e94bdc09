"""Which IP addresses may be called for a URL that came with a payload: public ones, none that leads back in.

`ipaddress.is_global` is not enough: on some releases it lets through addresses that carry an IPv4 address
inside (6to4, NAT64, IPv4-compatible), multicast, and relays. Here IPv6 is closed but for what is given out.
"""

from __future__ import annotations

import ipaddress

_IPV4 = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by a provider's customers",
    "127.0.0.0/8": "this machine",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "protocol assignments",
    "192.0.2.0/24": "documentation",
    "192.31.196.0/24": "name-server redirection",
    "192.52.193.0/24": "multicast tunnels",
    "192.88.99.0/24": "6to4 relays",
    "192.168.0.0/16": "private",
    "192.175.48.0/24": "name-server redirection",
    "198.18.0.0/15": "benchmarks",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
}

_IPV6_GIVEN_OUT = ipaddress.IPv6Network("2000::/3")

_IPV6 = {
    "2001::/23": "protocol assignments and Teredo",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4, which carries an IPv4 address",
    "2620:4f:8000::/48": "name-server redirection",
    "3ffe::/16": "a test network of the past",
    "3fff::/20": "documentation",
}

_CLOSED_IPV4 = tuple((ipaddress.IPv4Network(network), why) for network, why in _IPV4.items())
_CLOSED_IPV6 = tuple((ipaddress.IPv6Network(network), why) for network, why in _IPV6.items())


def why_closed(address: str) -> str | None:
    """Why nothing is sent to this address; None when it is public. Text that is no address is closed too."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "not an address"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.scope_id is not None:
            return "link-local"
        if parsed.ipv4_mapped is None:
            return _why_ipv6(parsed)
        parsed = parsed.ipv4_mapped
    return next((why for network, why in _CLOSED_IPV4 if parsed in network), None)


def _why_ipv6(address: ipaddress.IPv6Address) -> str | None:
    if address not in _IPV6_GIVEN_OUT:
        # Loopback, link-local, unique local, multicast, 64:ff9b::/96 and every other form that leads elsewhere.
        return "not a public IPv6 address"
    return next((why for network, why in _CLOSED_IPV6 if address in network), None)

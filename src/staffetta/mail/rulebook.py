"""The rules that bind each e-mail: the settings, a company's own over them, the e-mail's own over those."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from staffetta.mail import backoff
from staffetta.mail.attempt import Rules
from staffetta.mail.backoff import Policy
from staffetta.mail.deadletter import TTL_MS
from staffetta.mail.message import NO_OPTIONS, InDoubtPolicy, Options, RetryLimits, Value


class CompanyRules(Value, frozen=True, kw_only=True):
    """What `[companies."x"]` sets for one company's sending."""

    limits: RetryLimits | None = None
    callback_url: str | None = None
    transports: tuple[str, ...] = ()
    """Names of its own chain; empty: the default one."""


class RuleBook:
    """Looks up the rules of one e-mail. Rules without wishes of the e-mail's own are made once a company."""

    def __init__(
        self,
        *,
        policy: Policy,
        in_doubt: InDoubtPolicy = "resend",
        in_doubt_delay_ms: int = 900_000,
        dead_letter_ttl_ms: int = TTL_MS,
        callback_url: str | None = None,
        companies: Mapping[str, CompanyRules] | None = None,
    ) -> None:
        self._policy = policy
        self._default = Rules(
            policy=policy,
            in_doubt=in_doubt,
            in_doubt_delay_ms=in_doubt_delay_ms,
            dead_letter_ttl_ms=dead_letter_ttl_ms,
            callback_due=callback_url is not None,
        )
        self._companies = dict(companies or {})
        self._made = {name: self._of_company(rules) for name, rules in self._companies.items()}

    def _of_company(self, company: CompanyRules) -> Rules:
        return msgspec.structs.replace(
            self._default,
            policy=backoff.with_limits(self._policy, company.limits),
            callback_due=self._default.callback_due or company.callback_url is not None,
        )

    def rules_for(self, company_id: str, options: Options) -> Rules:
        rules = self._made.get(company_id, self._default)
        if options is NO_OPTIONS:
            return rules
        if options.limits is None and options.in_doubt is None and options.callback_url is None:
            return rules
        return msgspec.structs.replace(
            rules,
            policy=self.policy_for(company_id, options),
            in_doubt=options.in_doubt or rules.in_doubt,
            callback_due=rules.callback_due or options.callback_url is not None,
        )

    def policy_for(self, company_id: str, options: Options) -> Policy:
        """The curve of one e-mail: its own limits over its company's, field by field, over the settings'."""
        if options.limits is None:
            return self._made.get(company_id, self._default).policy
        company = self._companies.get(company_id)
        return backoff.with_limits(
            self._policy, backoff.over(options.limits, company.limits if company else None)
        )

    def transports_for(self, company_id: str) -> tuple[str, ...]:
        """The chain a company sends by; empty: the default one."""
        company = self._companies.get(company_id)
        return company.transports if company else ()

-- The first schema. How it is laid out, and why, stands in docs/decisions/0010-sqlite-layout.md.

-- Names of the codes that the tables keep, and how many e-mails rest in each status (claims not looked at).
-- Codes from 10 on are those that stay few: only they have an index by status.
CREATE TABLE statuses (code INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, total INTEGER NOT NULL DEFAULT 0);
INSERT INTO statuses (code, name) VALUES
    (1, 'READY'), (2, 'SENT'), (3, 'SENT-ACKNOWLEDGED'),
    (4, 'PROCESSING'), (5, 'INTAKING'), (6, 'CALLING-SENT-CALLBACK'), (7, 'CALLING-FAILED-CALLBACK'),
    (10, 'ACCEPTED'), (11, 'INVALID'), (12, 'FAILED'), (13, 'FAILED-ACKNOWLEDGED');

CREATE TABLE causes (code INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
INSERT INTO causes (code, name) VALUES
    (1, 'accepted'), (2, 'claimed'), (3, 'composed'), (4, 'invalid'), (5, 'delivered'), (6, 'deferred'),
    (7, 'held'), (8, 'stopped'), (9, 'in-doubt'), (10, 'ended in part'), (11, 'refused'), (12, 'exhausted'),
    (13, 'crashed'), (14, 'expired'), (15, 'cancelled'), (16, 'reporting'), (17, 'acknowledged'),
    (18, 'restored'), (19, 'retried'), (20, 'resolved');

CREATE TABLE companies (company INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- One e-mail's record. `status` is the one it rests in: while somebody holds it, `claims` has its row, and the
-- status there counts. Written at hand-in and at the end of each attempt, never in between.
CREATE TABLE mail (
    ref INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    company INTEGER NOT NULL,
    status INTEGER NOT NULL,
    version INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    opened INTEGER NOT NULL DEFAULT 0,
    doubts INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    alone_crashes INTEGER NOT NULL DEFAULT 0,
    sequence INTEGER NOT NULL DEFAULT 0,
    reached_at INTEGER NOT NULL DEFAULT 0,
    callback INTEGER NOT NULL DEFAULT 0, -- 0 nobody waits, 1 due, 2 given up, 3 being told
    last INTEGER NOT NULL,               -- its newest row in `journal`
    told INTEGER NOT NULL,               -- the row whose reason is the e-mail's
    settled TEXT,                        -- JSON: recipients that are finished
    remaining TEXT                       -- JSON: recipients left to try, where they became fewer
);
CREATE INDEX mail_by_time ON mail (created_at);
CREATE INDEX mail_by_company ON mail (company, created_at);
CREATE INDEX mail_by_status ON mail (status, created_at) WHERE status >= 10;
CREATE INDEX mail_by_company_status ON mail (company, status, created_at) WHERE status >= 10;
CREATE INDEX mail_to_report ON mail (updated_at) WHERE callback = 1;

-- Who holds an e-mail now, and how far he has come. Small: as many rows as are in work.
CREATE TABLE claims (
    ref INTEGER PRIMARY KEY,
    status INTEGER NOT NULL,
    token TEXT NOT NULL,
    at INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    part INTEGER NOT NULL DEFAULT 1,
    alone INTEGER NOT NULL DEFAULT 0,
    entry INTEGER NOT NULL,              -- the row in `journal` that tells of the claim
    committed_at INTEGER NOT NULL DEFAULT 0,
    transport TEXT NOT NULL DEFAULT ''
);

-- What happened, only ever added to: a row for each status entered, with the attempt that the move closed.
-- A row without a status closes a part of an attempt. Each names the one before it of the same e-mail.
CREATE TABLE journal (
    n INTEGER PRIMARY KEY,
    ref INTEGER NOT NULL,
    prev INTEGER,
    status INTEGER,
    cause INTEGER,
    at INTEGER NOT NULL,
    reason TEXT,
    token TEXT,
    attempt BLOB,
    marked INTEGER                       -- committed at, where the attempt itself does not say so
);

-- Rows of `journal` whose replies came too late for their claim and were not believed yet.
CREATE TABLE late (ref INTEGER NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (ref, n)) WITHOUT ROWID;

CREATE TABLE contents (
    ref INTEGER PRIMARY KEY,
    sender TEXT NOT NULL,
    recipients TEXT NOT NULL,            -- JSON: the envelope
    options TEXT,                        -- JSON, where anything is set
    fingerprint TEXT NOT NULL,
    eml_file_path TEXT,
    payload_file_path TEXT,
    erased INTEGER NOT NULL DEFAULT 0,
    message BLOB,
    payload BLOB
);
CREATE INDEX contents_by_eml_file ON contents (eml_file_path) WHERE eml_file_path IS NOT NULL;
CREATE INDEX contents_by_payload_file ON contents (payload_file_path) WHERE payload_file_path IS NOT NULL;

CREATE TABLE recipients (
    address TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    ref INTEGER NOT NULL,
    PRIMARY KEY (address, created_at, ref)
) WITHOUT ROWID;

-- Each company's READY e-mails in their order. May hold some that were finished lately: they are taken out by the
-- thousand, and whoever reads compares with `mail`.
CREATE TABLE line (
    company INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    ref INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (company, priority, due_at, ref)
) WITHOUT ROWID;

-- READY e-mails that were not due yet when they became so, until someone is told that they are.
CREATE TABLE agenda (due_at INTEGER NOT NULL, ref INTEGER NOT NULL, PRIMARY KEY (due_at, ref)) WITHOUT ROWID;

-- How many rows the agenda has: kept, so that nobody counts a million.
CREATE TABLE delayed (total INTEGER NOT NULL);
INSERT INTO delayed VALUES (0);
CREATE TRIGGER agenda_grows AFTER INSERT ON agenda BEGIN UPDATE delayed SET total = total + 1; END;
CREATE TRIGGER agenda_shrinks AFTER DELETE ON agenda BEGIN UPDATE delayed SET total = total - 1; END;

-- READY e-mails that the owner of the file has not heard of: made so by another process or by an operator.
CREATE TABLE tidings (n INTEGER PRIMARY KEY, ref INTEGER NOT NULL);

CREATE TABLE dead_letters (
    ref INTEGER PRIMARY KEY,
    company INTEGER NOT NULL,
    failed_attempts INTEGER NOT NULL,
    reason TEXT NOT NULL,
    code TEXT,
    failed_at INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    moved_at INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL,
    retrying_since INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX dead_letters_by_time ON dead_letters (moved_at);
CREATE INDEX dead_letters_by_company ON dead_letters (company, moved_at);
CREATE INDEX dead_letters_by_code ON dead_letters (code, moved_at);

-- E-mails that are reported together, and which of their outcomes it was.
CREATE TABLE batches (ref INTEGER PRIMARY KEY, batch TEXT NOT NULL, position INTEGER NOT NULL,
                      sequence INTEGER NOT NULL);
CREATE INDEX batches_by_name ON batches (batch, position);

-- Ended e-mails that retention passed by because they had a dead letter or an owner to be told: looked at again.
CREATE TABLE passed_by (ref INTEGER PRIMARY KEY);

CREATE TABLE answers (
    company_id TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, answer BLOB NOT NULL, at INTEGER NOT NULL,
    UNIQUE (company_id, key)
);
CREATE INDEX answers_by_time ON answers (at);

CREATE TABLE workers (
    id TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, started_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE figures (worker_id TEXT PRIMARY KEY, at INTEGER NOT NULL, told BLOB NOT NULL);

CREATE TABLE pauses (scope TEXT NOT NULL, name TEXT NOT NULL, since INTEGER NOT NULL, PRIMARY KEY (scope, name))
    WITHOUT ROWID;

CREATE TABLE api_keys (
    id TEXT PRIMARY KEY, sha256 TEXT NOT NULL, role TEXT NOT NULL, company_id TEXT, note TEXT NOT NULL,
    created_at INTEGER NOT NULL, revoked_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL);

-- How far through `journal` a slow duty has come.
CREATE TABLE marks (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO marks VALUES ('purged', 0), ('retired', 0), ('forgotten', 0);

-- The same facts under the names and columns that MySQL stores have, for people and runbooks.
CREATE VIEW emails AS
SELECT m.id AS id, s.name AS status, t.eml_file_path AS eml_file_path, t.payload_file_path AS payload_file_path,
       j.reason AS reason, m.version + (c.ref IS NOT NULL) AS version,
       strftime('%Y-%m-%d %H:%M:%f', m.created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%d %H:%M:%f', coalesce(c.at, m.updated_at) / 1000.0, 'unixepoch') AS updated_at,
       o.name AS company_id, m.attempts AS attempts,
       strftime('%Y-%m-%d %H:%M:%f', m.due_at / 1000.0, 'unixepoch') AS next_attempt_at,
       strftime('%Y-%m-%d %H:%M:%f', m.expires_at / 1000.0, 'unixepoch') AS expires_at,
       t.sender AS sender, t.recipients AS recipients
FROM mail m
JOIN companies o ON o.company = m.company
JOIN contents t ON t.ref = m.ref
LEFT JOIN claims c ON c.ref = m.ref
JOIN statuses s ON s.code = coalesce(c.status, m.status)
LEFT JOIN journal j ON j.n = m.told;

CREATE VIEW email_statuses AS
SELECT j.n AS id, m.id AS email_id, s.name AS status, j.reason AS reason,
       strftime('%Y-%m-%d %H:%M:%f', j.at / 1000.0, 'unixepoch') AS created_at, k.name AS cause
FROM mail m
JOIN json_each((
    WITH RECURSIVE chain (n, prev) AS (
        SELECT n, prev FROM journal WHERE n = coalesce((SELECT entry FROM claims WHERE ref = m.ref), m.last)
        UNION ALL
        SELECT o.n, o.prev FROM chain JOIN journal o ON o.n = chain.prev
    )
    SELECT json_group_array(n) FROM chain
)) r
JOIN journal j ON j.n = r.value
JOIN statuses s ON s.code = j.status
JOIN causes k ON k.code = j.cause;

CREATE VIEW dlq AS
SELECT m.id AS jobId, m.id AS outboxId, o.name AS companyId, CAST(t.payload AS TEXT) AS originalData,
       d.failed_attempts AS failedAttempts, d.reason AS lastFailureReason, d.code AS lastFailureCode,
       strftime('%Y-%m-%dT%H:%M:%fZ', d.failed_at / 1000.0, 'unixepoch') AS lastFailureTimestamp,
       strftime('%Y-%m-%dT%H:%M:%fZ', d.enqueued_at / 1000.0, 'unixepoch') AS enqueuedAt,
       strftime('%Y-%m-%dT%H:%M:%fZ', d.moved_at / 1000.0, 'unixepoch') AS movedToDLQAt,
       d.ttl_ms AS ttl
FROM dead_letters d
JOIN mail m ON m.ref = d.ref
JOIN companies o ON o.company = d.company
JOIN contents t ON t.ref = d.ref;

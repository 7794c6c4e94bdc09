-- What Staffetta keeps beside what other programs know: columns with defaults, and tables of its own.
-- Why it is laid out so stands in docs/decisions/0060-mysql-layout.md. Times are milliseconds since 1970 UTC.
-- Where it says that blanks count, the server's own name for utf8mb4_bin without padding is put in.

ALTER TABLE emails
    ADD COLUMN company_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin /* blanks count */
        NOT NULL DEFAULT 'default',
    ADD COLUMN priority TINYINT UNSIGNED NOT NULL DEFAULT 5,
    ADD COLUMN next_attempt_at BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN expires_at BIGINT NULL COMMENT 'none: another program made it READY and nobody has looked at it yet',
    ADD COLUMN wakes_at BIGINT NULL COMMENT 'READY and not due yet: when it will be',
    ADD COLUMN accepted_ms BIGINT NULL COMMENT 'when it was handed in, or first seen here',
    ADD COLUMN moved_ms BIGINT NULL COMMENT 'when we moved it last',
    ADD COLUMN our_version INT NULL COMMENT 'its version since our last move; another one: somebody else moved it',
    ADD COLUMN token VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    ADD COLUMN claimed_ms BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN part SMALLINT NOT NULL DEFAULT 1,
    ADD COLUMN committed_ms BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN transport VARCHAR(255) NOT NULL DEFAULT '',
    ADD COLUMN alone TINYINT NOT NULL DEFAULT 0,
    ADD COLUMN attempts INT NOT NULL DEFAULT 0,
    ADD COLUMN opened INT NOT NULL DEFAULT 0,
    ADD COLUMN doubts INT NOT NULL DEFAULT 0,
    ADD COLUMN crashes INT NOT NULL DEFAULT 0,
    ADD COLUMN alone_crashes INT NOT NULL DEFAULT 0,
    ADD COLUMN late TINYINT NOT NULL DEFAULT 0 COMMENT 'replies wait in staffetta_late',
    ADD COLUMN sequence INT NOT NULL DEFAULT 0,
    ADD COLUMN reached_ms BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN callback TINYINT NULL COMMENT 'none or 0: nobody waits, 1: due, 2: given up, 3: being told',
    ADD COLUMN settled MEDIUMTEXT NULL COMMENT 'JSON: recipients that are finished',
    ADD COLUMN remaining MEDIUMTEXT NULL COMMENT 'JSON: recipients left to try, where they became fewer',
    ADD INDEX staffetta_line (status, company_id, priority, next_attempt_at),
    ADD INDEX staffetta_wakes (wakes_at),
    ADD INDEX staffetta_owed (callback, reached_ms),
    ADD INDEX staffetta_arrived (created_at),
    ADD INDEX staffetta_company (company_id, created_at),
    ADD INDEX staffetta_eml (eml_file_path),
    ADD INDEX staffetta_payload (payload_file_path);

ALTER TABLE email_statuses
    ADD COLUMN cause VARCHAR(20) NULL,
    ADD COLUMN at_ms BIGINT NULL,
    ADD COLUMN token VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    ADD COLUMN attempt MEDIUMBLOB NULL COMMENT 'the attempt that this move closed';

-- Closed parts of attempts that a later part followed.
CREATE TABLE IF NOT EXISTS staffetta_parts (
    id BIGINT AUTO_INCREMENT PRIMARY KEY,
    email_id CHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    attempt MEDIUMBLOB NOT NULL,
    FOREIGN KEY (email_id) REFERENCES emails (id) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Replies that came after their claim was gone, until a move believes them.
CREATE TABLE IF NOT EXISTS staffetta_late (
    id BIGINT AUTO_INCREMENT PRIMARY KEY,
    email_id CHAR(36) NOT NULL,
    attempt MEDIUMBLOB NOT NULL,
    FOREIGN KEY (email_id) REFERENCES emails (id) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS contents (
    email_id CHAR(36) NOT NULL PRIMARY KEY,
    sender VARCHAR(400) NOT NULL DEFAULT '',
    recipients MEDIUMTEXT NULL COMMENT 'JSON: the envelope',
    options MEDIUMTEXT NULL COMMENT 'JSON, where anything is set',
    fingerprint VARCHAR(200) NOT NULL DEFAULT '',
    erased TINYINT NOT NULL DEFAULT 0,
    message LONGBLOB NULL,
    payload LONGBLOB NULL,
    FOREIGN KEY (email_id) REFERENCES emails (id) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS staffetta_recipients (
    address VARCHAR(400) NOT NULL,
    email_id CHAR(36) NOT NULL,
    PRIMARY KEY (address, email_id),
    FOREIGN KEY (email_id) REFERENCES emails (id) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS staffetta_dead_letters (
    email_id CHAR(36) NOT NULL PRIMARY KEY,
    company_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin /* blanks count */ NOT NULL,
    failed_attempts INT NOT NULL,
    reason VARCHAR(500) NOT NULL,
    code VARCHAR(64) NULL,
    failed_at BIGINT NOT NULL,
    enqueued_at BIGINT NOT NULL,
    moved_at BIGINT NOT NULL,
    ttl_ms BIGINT NOT NULL,
    retrying_since BIGINT NOT NULL DEFAULT 0,
    INDEX by_time (moved_at),
    INDEX by_company (company_id, moved_at),
    INDEX by_code (code, moved_at),
    FOREIGN KEY (email_id) REFERENCES emails (id) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS staffetta_batches (
    email_id CHAR(36) NOT NULL PRIMARY KEY,
    batch VARCHAR(64) NOT NULL,
    position INT NOT NULL,
    sequence INT NOT NULL,
    INDEX by_name (batch, position),
    FOREIGN KEY (email_id) REFERENCES emails (id) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Ended e-mails that retention passed by because they had a dead letter or an owner to be told: looked at again.
CREATE TABLE IF NOT EXISTS staffetta_passed_by (
    email_id CHAR(36) NOT NULL PRIMARY KEY,
    FOREIGN KEY (email_id) REFERENCES emails (id) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS staffetta_answers (
    company_id VARBINARY(256) NOT NULL,
    name VARBINARY(1020) NOT NULL,
    fingerprint VARCHAR(200) NOT NULL,
    answer LONGBLOB NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (company_id, name),
    INDEX by_time (at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS staffetta_workers (
    id VARCHAR(100) NOT NULL PRIMARY KEY,
    host VARCHAR(255) NOT NULL,
    pid BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    feeds TINYINT NOT NULL DEFAULT 0
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS staffetta_figures (
    worker_id VARCHAR(100) NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    told LONGBLOB NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS staffetta_pauses (
    scope VARCHAR(20) NOT NULL,
    name VARCHAR(255) NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (scope, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS staffetta_keys (
    id VARCHAR(100) NOT NULL PRIMARY KEY,
    sha256 VARCHAR(64) NOT NULL,
    role VARCHAR(20) NOT NULL,
    company_id VARCHAR(64) NULL,
    note TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS staffetta_settings (
    name VARCHAR(255) NOT NULL PRIMARY KEY,
    value LONGBLOB NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- The runbook's names. A view tells times by no session's clock: it counts from 1970 by itself.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW dlq AS
SELECT d.email_id AS jobId, d.email_id AS outboxId, d.company_id AS companyId,
       CONVERT(c.payload USING utf8mb4) AS originalData, d.failed_attempts AS failedAttempts,
       d.reason AS lastFailureReason, d.code AS lastFailureCode,
       CONCAT(LEFT(DATE_FORMAT(TIMESTAMPADD(MICROSECOND, d.failed_at * 1000, '1970-01-01'), '%Y-%m-%dT%H:%i:%s.%f'),
                   23), 'Z') AS lastFailureTimestamp,
       CONCAT(LEFT(DATE_FORMAT(TIMESTAMPADD(MICROSECOND, d.enqueued_at * 1000, '1970-01-01'), '%Y-%m-%dT%H:%i:%s.%f'),
                   23), 'Z') AS enqueuedAt,
       CONCAT(LEFT(DATE_FORMAT(TIMESTAMPADD(MICROSECOND, d.moved_at * 1000, '1970-01-01'), '%Y-%m-%dT%H:%i:%s.%f'),
                   23), 'Z') AS movedToDLQAt,
       d.ttl_ms AS ttl
FROM staffetta_dead_letters d
LEFT JOIN contents c ON c.email_id = d.email_id;

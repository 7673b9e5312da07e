PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE submissions (
    number         INTEGER PRIMARY KEY CHECK (number >= 1),
    received_at    REAL NOT NULL,
    model_path     TEXT NOT NULL,
    note           TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('accepted', 'scored', 'failed', 'rejected')),
    weights_digest TEXT,
    content_digest TEXT,
    is_base_copy   INTEGER NOT NULL DEFAULT 0 CHECK (is_base_copy IN (0, 1)),
    revision       TEXT,
    remarks        TEXT NOT NULL DEFAULT '[]',
    fault          TEXT,
    reason         TEXT NOT NULL DEFAULT '',
    finished_at    REAL
);
INSERT INTO submissions VALUES(1,1795648250.2465698718,'/workspace/output/model','sft on 3000 rows, dev 91.0%','scored','b203b8854560be35d937764a8665f8b6a66262ff6de7cf564a10b1ff74e6ee96','7cc276acbd97a101fa953fd5c4cba53c596a6628e00f555e530fcef7e1606269',0,'b39e72e2c228728574181a6acdce40aca731433d','[]',NULL,'',1795648262.6537926197);
CREATE TABLE scores (
    submission INTEGER NOT NULL REFERENCES submissions (number),
    split      TEXT NOT NULL,
    value      REAL NOT NULL CHECK (value BETWEEN 0 AND 1),
    low        REAL NOT NULL,
    high       REAL NOT NULL,
    n_items    INTEGER NOT NULL,
    n_missing  INTEGER NOT NULL,
    card       TEXT NOT NULL,
    UNIQUE (submission, split)
);
INSERT INTO scores VALUES(1,'test_public',0.88500000000000000888,0.8500084559842240317,0.91266707737836760827,400,0,'submissions/1/card');
CREATE TABLE grading_time (submission INTEGER NOT NULL, seconds REAL NOT NULL);
INSERT INTO grading_time VALUES(1,11.762945852000484592);
CREATE TABLE submit_keys (key TEXT PRIMARY KEY, submission INTEGER NOT NULL REFERENCES submissions (number), is_closed INTEGER NOT NULL);
INSERT INTO submit_keys VALUES('dcf31c0c14d76aaf42743714e72a8941',1,0);
CREATE TABLE judgements (number INTEGER PRIMARY KEY, at REAL NOT NULL, item TEXT NOT NULL, reply TEXT NOT NULL, value REAL NOT NULL CHECK (value BETWEEN 0 AND 1), reason TEXT NOT NULL, UNIQUE (item, reply));
COMMIT;

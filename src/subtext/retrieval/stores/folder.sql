CREATE TABLE state (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID; -- no type: texts of digits stay texts
CREATE TABLE items (
    key INTEGER PRIMARY KEY, side INTEGER NOT NULL, id TEXT NOT NULL, folded_id TEXT NOT NULL,
    path TEXT, text TEXT, metadata TEXT NOT NULL, content BLOB NOT NULL, stamp TEXT, digest BLOB NOT NULL,
    UNIQUE (side, id)
);
CREATE INDEX items_by_folded_id ON items (side, folded_id);
CREATE TABLE links (image TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (image, text)) WITHOUT ROWID;
CREATE INDEX links_of_texts ON links (text, image);
-- A text is folded, and written is what it was, where that differs; a number beyond 64 bits is a float, and written exact.
CREATE TABLE facets (
    side INTEGER NOT NULL, name TEXT NOT NULL, value NOT NULL, key INTEGER NOT NULL,
    written TEXT NOT NULL, PRIMARY KEY (side, name, value, key, written)
) WITHOUT ROWID;
-- Words that are folded and split already: see retrieval/words.py.
CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'ascii');
-- Words of ids, files and metadata of images, how often each occurs, and of how many. Not by FTS5, which keeps deleted words.
CREATE TABLE image_words (
    word TEXT NOT NULL, key INTEGER NOT NULL, times INTEGER NOT NULL, length INTEGER NOT NULL, PRIMARY KEY (word, key)
) WITHOUT ROWID;
CREATE TABLE segments (
    name TEXT PRIMARY KEY, side INTEGER NOT NULL, number INTEGER NOT NULL, row_count INTEGER NOT NULL, lists TEXT,
    checksums TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE lists (
    name TEXT PRIMARY KEY, side INTEGER NOT NULL, probes INTEGER NOT NULL, recalls TEXT NOT NULL,
    checksums TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE tombstones (key INTEGER PRIMARY KEY, side INTEGER NOT NULL);
CREATE TABLE forgotten (hash BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE traces (hash TEXT PRIMARY KEY, names TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY, verb TEXT NOT NULL, source TEXT, started TEXT NOT NULL, finished TEXT,
    done INTEGER NOT NULL, total INTEGER NOT NULL
);
-- Numbers of the index; the last key and segment; and a sum of the rows of each table, which `verify` compares.
INSERT INTO state VALUES
    ('generation', 0), ('change', 0), ('images', 0), ('texts', 0), ('sentences', 0), ('neighbours', 0), ('key', 0), ('segment', 0), ('facets', 0),
    ('links', 0), ('forgotten', 0), ('jobs', 0), ('tombstones', 0), ('segments', 0), ('lists', 0), ('traces', 0),
    ('words_idx', 0), ('image_words', 0), ('state', 0);

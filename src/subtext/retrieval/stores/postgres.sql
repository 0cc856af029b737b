CREATE TABLE manifest (one boolean PRIMARY KEY DEFAULT true CHECK (one), json text NOT NULL);
CREATE TABLE state (name text PRIMARY KEY, value bigint NOT NULL);
CREATE TABLE items (
    key bigint PRIMARY KEY, side smallint NOT NULL, id text NOT NULL, folded_id text NOT NULL, path text, text text,
    metadata text NOT NULL, content bytea NOT NULL, stamp text, digest bytea NOT NULL, vectors_digest bytea NOT NULL,
    words tsvector, length integer, UNIQUE (side, id)
);
CREATE INDEX items_by_folded_id ON items (side, folded_id);
CREATE INDEX items_by_words ON items USING gin (words);
CREATE TABLE links (image text NOT NULL, text text NOT NULL, PRIMARY KEY (image, text));
CREATE INDEX links_of_texts ON links (text, image);
CREATE TABLE facets (
    key bigint NOT NULL REFERENCES items ON DELETE CASCADE, side smallint NOT NULL, name text NOT NULL,
    number numeric, word text, folded text
);
CREATE INDEX facets_of_items ON facets (key);
CREATE INDEX facets_by_number ON facets (side, name, number, key);
CREATE INDEX facets_by_word ON facets (side, name, left(folded, 200), key) WHERE folded IS NOT NULL;
CREATE TABLE images_vectors (
    key bigint NOT NULL REFERENCES items ON DELETE CASCADE, view smallint NOT NULL, vector vector({width}) NOT NULL,
    PRIMARY KEY (key, view)
);
-- A vector stays in its row: outside of it each comparison would have to fetch it.
ALTER TABLE images_vectors ALTER COLUMN vector SET STORAGE PLAIN;
CREATE TABLE texts_vectors (LIKE images_vectors INCLUDING ALL, FOREIGN KEY (key) REFERENCES items ON DELETE CASCADE);
CREATE TABLE forgotten (hash bytea PRIMARY KEY);
CREATE TABLE jobs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, verb text NOT NULL, source text, started text NOT NULL,
    finished text, done bigint NOT NULL, total bigint NOT NULL
);
CREATE TABLE kept (name text PRIMARY KEY, value text NOT NULL, written timestamptz NOT NULL DEFAULT now());
INSERT INTO state VALUES
    ('generation', 0), ('change', 0), ('images', 0), ('texts', 0), ('key', 0), ('worded', 0), ('words', 0), ('facets', 0);

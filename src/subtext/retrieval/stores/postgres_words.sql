-- BM25 of the items of a side that have some of the words of a query. k1 = 1.2 and b = 0.75, as FTS5 has them; a word that more
-- than half of the items have weighs 1e-6, as there.
WITH
query AS (
    SELECT word, count(*) AS times FROM unnest(%(query)s::text[]) AS q(word) GROUP BY word
),
weighed AS (
    SELECT word, times * greatest(1e-6::float8, ln((%(number)s::float8 - n + 0.5) / (n + 0.5))) AS weight
    FROM query, LATERAL (
        SELECT count(*)::float8 AS n FROM items WHERE side = %(side)s AND words @@ ('''' || word || '''')::tsquery
    ) AS c
)
SELECT
    key,
    sum(weight * f * (1.2::float8 + 1)
        / (f + 1.2::float8 * (1 - 0.75::float8 + 0.75::float8 * length / %(mean)s::float8))) AS score
FROM items
CROSS JOIN LATERAL unnest(words) AS u(lexeme, places, weights)
JOIN weighed ON word = lexeme
CROSS JOIN LATERAL (SELECT cardinality(places)::float8 AS f) AS t
WHERE side = %(side)s AND words @@ %(any)s::tsquery
GROUP BY key
ORDER BY score DESC, key
LIMIT %(top)s

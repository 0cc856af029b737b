-- How the tables of a schema look, a line for each part. Definitions name no schema, as an index may be renamed.
WITH own AS (
    SELECT * FROM pg_class
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relkind IN ('r', 'p', 'v', 'm', 'f')
)
SELECT format('table %%s (%%s %%s%%s%%s)', relname, relkind, relpersistence,
    CASE WHEN relrowsecurity THEN ' row security' END, CASE WHEN relforcerowsecurity THEN ' forced' END) FROM own
UNION ALL
SELECT format('column %%s.%%s %%s%%s %%s%%s %%s', relname, attname, format_type(atttypid, atttypmod),
    CASE WHEN attnotnull THEN ' NOT NULL' END, attidentity, attgenerated, attstorage)
FROM own JOIN pg_attribute ON attrelid = own.oid AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT format('default of %%s.%%s', relname, attname)
FROM own JOIN pg_attrdef ON adrelid = own.oid JOIN pg_attribute a ON attrelid = own.oid AND attnum = adnum
UNION ALL
SELECT format('%%s %%s of %%s%%s by %%s (%%s)%%s', CASE WHEN indisunique THEN 'key' ELSE 'index' END, i.relname,
    own.relname, CASE WHEN indisvalid AND indisready THEN '' ELSE ' invalid' END, amname,
    (SELECT string_agg(pg_get_indexdef(indexrelid, n, true), ', ' ORDER BY n) FROM generate_series(1, indnatts) AS n),
    CASE WHEN indpred IS NOT NULL THEN ' WHERE ' || pg_get_expr(indpred, indrelid, true) END)
FROM own JOIN pg_index ON indrelid = own.oid JOIN pg_class i ON i.oid = indexrelid JOIN pg_am ON pg_am.oid = i.relam
WHERE i.relname <> ALL (%(graphs)s::text[])
UNION ALL
-- PostgreSQL 18 counts NOT NULL of a column as a constraint.
SELECT format('constraint of %%s: %%s', relname, pg_get_constraintdef(c.oid, true))
FROM own JOIN pg_constraint c ON conrelid = own.oid WHERE contype IN ('c', 'f', 'p', 'u', 'x')
UNION ALL
SELECT format('trigger %%s of %%s', CASE WHEN tgisinternal THEN '(disabled)' ELSE tgname END, relname)
FROM own JOIN pg_trigger ON tgrelid = own.oid WHERE NOT tgisinternal OR tgenabled <> 'O'
UNION ALL
SELECT format('rule %%s of %%s', rulename, relname)
FROM own JOIN pg_rewrite ON ev_class = own.oid WHERE rulename <> '_RETURN'
UNION ALL
SELECT format('policy %%s of %%s', polname, relname) FROM own JOIN pg_policy ON polrelid = own.oid

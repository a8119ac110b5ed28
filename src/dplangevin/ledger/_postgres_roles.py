"""Who may do what in PostgreSQL: spenders append through two functions and touch no table.

The functions run with the owner's rights, compute number and link of an entry themselves, and change nothing that is
written. They do not compose costs: a spender whose program skips the check can overspend, and the entry shows it; it
cannot raise a budget, declare, change or delete an entry, or append without a trace.

Whoever may create in a schema that names are looked up in can put a function there which fits better than the
system's, and it would run with the rights of the one who calls it. So names in the functions are written in full, and
a session refuses a schema where others than its owner may create.
"""

from __future__ import annotations

from dplangevin.errors import InvalidParameter

TABLES = (
    "dplangevin_ledger",
    "dplangevin_dataset",
    "dplangevin_part",
    "dplangevin_guarantee",
    "dplangevin_entry",
)
_APPEND = "dplangevin_append(text, text, text, text, text, text, text, text, text, text)"
_NOTE = "dplangevin_note(text, text, text, text)"

FUNCTIONS = (
    """CREATE OR REPLACE FUNCTION dplangevin_append(
        wanted text, expected text, token_ text, part_ text, label_ text, created_ text, digest_ text, content_ text,
        plan_ text, library_ text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $body$
    DECLARE
        known dplangevin_dataset%ROWTYPE;
        place bigint;
        next_link text;
    BEGIN
        SELECT * INTO known FROM dplangevin_dataset WHERE name = wanted FOR UPDATE;
        IF NOT FOUND OR expected IS DISTINCT FROM known.head THEN
            RETURN false;
        END IF;
        IF digest_ <> pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(content_, 'UTF8')), 'hex') THEN
            RAISE EXCEPTION 'the guarantee does not have this digest';
        END IF;
        IF token_ !~ '^[0-9a-f]{64}$' THEN
            RAISE EXCEPTION 'the token is not a hash';
        END IF;
        IF part_ <> '' AND NOT EXISTS (SELECT 1 FROM dplangevin_part WHERE dataset = wanted AND name = part_) THEN
            RAISE EXCEPTION 'the data set has no such part';
        END IF;
        IF position(E'\\n' in part_ || label_ || created_ || plan_ || library_) > 0 THEN
            RAISE EXCEPTION 'an entry must not hold line breaks';
        END IF;
        place := known.entries + 1;
        next_link := pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.concat_ws(E'\\n', known.head,
            place::text, token_, part_, label_, created_, digest_, plan_, library_), 'UTF8')), 'hex');
        INSERT INTO dplangevin_guarantee (digest, content) VALUES (digest_, content_) ON CONFLICT (digest) DO NOTHING;
        INSERT INTO dplangevin_entry (dataset, sequence, token, part, label, created, guarantee, plan, library, chain)
            VALUES (wanted, place, token_, part_, label_, created_, digest_, plan_, library_, next_link);
        UPDATE dplangevin_dataset SET entries = place, head = next_link WHERE name = wanted;
        RETURN true;
    END $body$""",
    """CREATE OR REPLACE FUNCTION dplangevin_note(wanted text, token_ text, digest_ text, moment text)
        RETURNS void LANGUAGE sql SECURITY DEFINER AS $body$
        UPDATE dplangevin_entry SET release_hash = digest_, released = moment
            WHERE dataset = wanted AND release_hash IS NULL
            AND token = pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(
                pg_catalog.concat('token', E'\\n', token_), 'UTF8')), 'hex')
    $body$""",
)

GRANTED = (
    "SELECT c.relname, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END FROM pg_class c, "
    "aclexplode(c.relacl) a WHERE c.relname IN (" + ", ".join(f"'{table}'" for table in TABLES) + ") "
    "AND c.relnamespace = current_schema()::regnamespace AND a.grantee <> c.relowner GROUP BY 1, 2"
)
"""Who but the owner has rights on the tables."""

CREATORS = (
    "SELECT n.nspname, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END "
    "FROM pg_catalog.pg_namespace n, LATERAL pg_catalog.aclexplode(n.nspacl) a "
    "WHERE n.nspname = ANY (pg_catalog.current_schemas(false)) AND a.privilege_type = 'CREATE' "
    "AND a.grantee <> n.nspowner AND a.grantee <> COALESCE((SELECT c.relowner FROM pg_catalog.pg_class c "
    "WHERE c.oid = pg_catalog.to_regclass('dplangevin_ledger')), current_user::regrole::oid)"
)
"""Who but the owner may put something where names are looked up."""

ABOVE = (
    "SELECT pg_catalog.pg_has_role(?, c.relowner, 'MEMBER') FROM pg_catalog.pg_class c "
    "WHERE c.oid = pg_catalog.to_regclass('dplangevin_dataset')"
)
"""Is a role the owner, or can it become the owner (as administrators can)?"""

HAS = (
    "SELECT has_schema_privilege(?, current_schema(), 'USAGE') "
    "AND has_table_privilege(?, 'dplangevin_entry', 'SELECT'), "
    f"has_function_privilege(?, '{_APPEND}', 'EXECUTE'), "
    + " OR ".join(
        f"has_table_privilege(?, '{table}', 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')" for table in TABLES
    )
)
ROLES_IN_HAS = 3 + len(TABLES)
RIGHTS = {"spender": (True, True, False), "reader": (True, False, False), "nothing": (False, False, False)}
"""What a role has after its grant: may it read, may it append, may it write past the functions?"""


def grants(role: str, schema: str, may: str) -> list[str]:
    """The statements that make a role (quoted) a spender or a reader; "nothing" takes it all back."""
    if may not in RIGHTS:
        raise InvalidParameter(f"a role may be a spender or a reader, or nothing; got {may!r}.")
    everything = [
        *(f"REVOKE ALL ON {table} FROM {role}" for table in TABLES),
        *(f"REVOKE ALL ON FUNCTION {function} FROM {role}" for function in (_APPEND, _NOTE)),
    ]
    if may == "nothing":
        return everything
    everything.append(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    everything += [f"GRANT SELECT ON {table} TO {role}" for table in TABLES]
    if may == "spender":
        everything += [f"GRANT EXECUTE ON FUNCTION {function} TO {role}" for function in (_APPEND, _NOTE)]
    return everything

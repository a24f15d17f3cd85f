SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA lakeseal;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE lakeseal.commits (
    table_key text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    txn_id text NOT NULL COLLATE pg_catalog."C",
    file text COLLATE pg_catalog."C",
    size bigint NOT NULL,
    in_commit_timestamp bigint NOT NULL,
    inline bytea,
    ratified bigint NOT NULL,
    backfilled boolean NOT NULL,
    backfilled_at bigint,
    sha256 text COLLATE pg_catalog."C"
);
CREATE TABLE lakeseal.facts (
    name text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE lakeseal.heads (
    repo_key text NOT NULL COLLATE pg_catalog."C",
    branch_key text NOT NULL COLLATE pg_catalog."C",
    repo text NOT NULL COLLATE pg_catalog."C",
    branch text NOT NULL COLLATE pg_catalog."C",
    commit_id text NOT NULL COLLATE pg_catalog."C",
    epoch bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    info text NOT NULL COLLATE pg_catalog."C",
    created bigint NOT NULL,
    updated bigint NOT NULL
);
CREATE TABLE lakeseal.leases (
    name_key text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    holder text NOT NULL COLLATE pg_catalog."C",
    epoch bigint NOT NULL,
    expires bigint NOT NULL,
    info text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE lakeseal.ledger_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE lakeseal.runs (
    run_id text NOT NULL COLLATE pg_catalog."C",
    pipeline_key text NOT NULL COLLATE pg_catalog."C",
    pipeline text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    started bigint NOT NULL,
    ended bigint,
    detail text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE lakeseal.schemas (
    schema_id text NOT NULL COLLATE pg_catalog."C",
    catalog text NOT NULL COLLATE pg_catalog."C",
    catalog_folded text NOT NULL COLLATE pg_catalog."C",
    schema text NOT NULL COLLATE pg_catalog."C",
    schema_folded text NOT NULL COLLATE pg_catalog."C",
    created bigint NOT NULL
);
CREATE TABLE lakeseal.sequences (
    store_key text NOT NULL COLLATE pg_catalog."C",
    dataset_key text NOT NULL COLLATE pg_catalog."C",
    store text NOT NULL COLLATE pg_catalog."C",
    dataset text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    epoch bigint NOT NULL,
    count bigint NOT NULL,
    checksum text NOT NULL COLLATE pg_catalog."C",
    payload bytea,
    tries bigint NOT NULL,
    reason text COLLATE pg_catalog."C",
    created bigint NOT NULL,
    updated bigint NOT NULL
);
CREATE TABLE lakeseal.staged_tables (
    table_uuid text NOT NULL COLLATE pg_catalog."C",
    catalog text NOT NULL COLLATE pg_catalog."C",
    schema text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    uri text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    created bigint NOT NULL
);
CREATE TABLE lakeseal.stores (
    store_key text NOT NULL COLLATE pg_catalog."C",
    store text NOT NULL COLLATE pg_catalog."C",
    created bigint NOT NULL
);
CREATE TABLE lakeseal.table_names (
    table_uuid text NOT NULL COLLATE pg_catalog."C",
    schema_id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    name_folded text NOT NULL COLLATE pg_catalog."C",
    uri_key text NOT NULL COLLATE pg_catalog."C",
    uri text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    created bigint NOT NULL,
    updated bigint NOT NULL
);
CREATE TABLE lakeseal.tables (
    table_key text NOT NULL COLLATE pg_catalog."C",
    table_id text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    epoch bigint NOT NULL,
    takeover_id text COLLATE pg_catalog."C",
    takeover_version bigint,
    latest_version bigint,
    latest_timestamp bigint,
    backfilled_version bigint,
    conf text NOT NULL COLLATE pg_catalog."C",
    updated bigint NOT NULL
);
CREATE TABLE lakeseal.tags (
    repo_key text NOT NULL COLLATE pg_catalog."C",
    tag_key text NOT NULL COLLATE pg_catalog."C",
    repo text NOT NULL COLLATE pg_catalog."C",
    tag text NOT NULL COLLATE pg_catalog."C",
    commit_id text NOT NULL COLLATE pg_catalog."C",
    info text NOT NULL COLLATE pg_catalog."C",
    created bigint NOT NULL
);
CREATE TABLE lakeseal.task_states (
    store_key text NOT NULL COLLATE pg_catalog."C",
    dataset_key text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    task bigint NOT NULL,
    store text NOT NULL COLLATE pg_catalog."C",
    dataset text NOT NULL COLLATE pg_catalog."C",
    tasks bigint NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    output text NOT NULL COLLATE pg_catalog."C",
    reason text COLLATE pg_catalog."C",
    updated bigint NOT NULL
);
CREATE TABLE lakeseal.tokens (
    token_id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    hash text NOT NULL COLLATE pg_catalog."C",
    roles text NOT NULL COLLATE pg_catalog."C",
    created bigint NOT NULL,
    expires bigint,
    revoked bigint
);
CREATE TABLE lakeseal.watermarks (
    pipeline_key text NOT NULL COLLATE pg_catalog."C",
    dataset_key text NOT NULL COLLATE pg_catalog."C",
    partition_key text NOT NULL COLLATE pg_catalog."C",
    pipeline text NOT NULL COLLATE pg_catalog."C",
    dataset text NOT NULL COLLATE pg_catalog."C",
    partition text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    epoch bigint NOT NULL,
    updated bigint NOT NULL
);
INSERT INTO lakeseal.commits VALUES ('6f1deb01f178dd70b00e404ba9d7090ec6fbaeb58cefdfc4806cc8d532ffd0ec', 9007199254740993, 'txn_id-1', 'file 名前 é ''1'' %s', 9007199254740993, 9007199254740993, '\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff', 9007199254740993, true, 9007199254740993, 'sha256-1');
INSERT INTO lakeseal.commits VALUES ('a9d6c65e41a38a2ab9a7f2533220f042e71edb9594da28a87ce3df601860d617', 9007199254740994, 'txn_id-2', NULL, 9007199254740994, 9007199254740994, NULL, 9007199254740994, false, NULL, NULL);
INSERT INTO lakeseal.facts VALUES ('identity', '"93538120-b663-451a-a1b0-27007c9d0cca"');
INSERT INTO lakeseal.facts VALUES ('name-1', '{"a":{},"z":[1,null,"ü"]}');
INSERT INTO lakeseal.facts VALUES ('name-2', '{"a":{},"z":[2,null,"ü"]}');
INSERT INTO lakeseal.heads VALUES ('e9070195264cfe54fcff57a5e00c19fa801b717cec543ee9cd0e679382831b62', '100a05d7bfac49d993ccc652fa344923754be964a9207c0c55ca93dd8ff5b672', 'repo 名前 é ''1'' %s', 'branch 名前 é ''1'' %s', 'commit_id-1', 9007199254740993, 'kind-1', '{"a":{},"z":[1,null,"ü"]}', 9007199254740993, 9007199254740993);
INSERT INTO lakeseal.heads VALUES ('c6f1fc8cd6697c6b0e0f29bc4c338b14cd180d593173f4a812cde6b1047e03d9', '1db270853af1b566a17842146ca3ab0cc1812cd84a4fae01cc7f1be08321f174', 'repo 名前 é ''2'' %s', 'branch 名前 é ''2'' %s', 'commit_id-2', 9007199254740994, 'kind-2', '{"a":{},"z":[2,null,"ü"]}', 9007199254740994, 9007199254740994);
INSERT INTO lakeseal.leases VALUES ('fef79f8e568b0b567eb2b77bc02bb31136e3ad7765763a03d10540459ec3fcc6', 'name 名前 é ''1'' %s', 'holder 名前 é ''1'' %s', 9007199254740993, 9007199254740993, '{"a":{},"z":[1,null,"ü"]}');
INSERT INTO lakeseal.leases VALUES ('48686746adfaf058d75453747c4c4e82caaad48e406272fda63324c70cff116a', 'name 名前 é ''2'' %s', 'holder 名前 é ''2'' %s', 9007199254740994, 9007199254740994, '{"a":{},"z":[2,null,"ü"]}');
INSERT INTO lakeseal.ledger_version VALUES ('0004');
INSERT INTO lakeseal.runs VALUES ('run_id-1', '76928c923415b110d913907cf473b6da21c3541efa48550c3ea8a88968afb1ef', 'pipeline 名前 é ''1'' %s', 'state-1', 9007199254740993, 9007199254740993, '{"a":{},"z":[1,null,"ü"]}');
INSERT INTO lakeseal.runs VALUES ('run_id-2', '99f2adbddeef7c3f15bbd0848945118982b2bbad46c446ab1de3379aadcc7117', 'pipeline 名前 é ''2'' %s', 'state-2', 9007199254740994, NULL, '{"a":{},"z":[2,null,"ü"]}');
INSERT INTO lakeseal.schemas VALUES ('schema_id-1', 'catalog 名前 é ''1'' %s', 'catalog_folded-1', 'schema 名前 é ''1'' %s', 'schema_folded-1', 9007199254740993);
INSERT INTO lakeseal.schemas VALUES ('schema_id-2', 'catalog 名前 é ''2'' %s', 'catalog_folded-2', 'schema 名前 é ''2'' %s', 'schema_folded-2', 9007199254740994);
INSERT INTO lakeseal.sequences VALUES ('f88b4ac5b2dc4a65f80bdbca1e7f350447ca75110530e529f169bcbbeb228ebc', '1bc66fb40119fe385051679b50acb52ce29eafb366bc8183675a3a2636800061', 'store 名前 é ''1'' %s', 'dataset 名前 é ''1'' %s', 'state-1', 9007199254740993, 9007199254740993, 'checksum-1', '\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff', 9007199254740993, 'reason 名前 é ''1'' %s', 9007199254740993, 9007199254740993);
INSERT INTO lakeseal.sequences VALUES ('e568af322243f17b81a097231b0f632437af0318e6a74de2b2af680169bb45df', '054d3d105a22868233165b5229793f5e809b49692e7081ac796e01eae1762db2', 'store 名前 é ''2'' %s', 'dataset 名前 é ''2'' %s', 'state-2', 9007199254740994, 9007199254740994, 'checksum-2', NULL, 9007199254740994, NULL, 9007199254740994, 9007199254740994);
INSERT INTO lakeseal.staged_tables VALUES ('table_uuid-1', 'catalog 名前 é ''1'' %s', 'schema 名前 é ''1'' %s', 'name 名前 é ''1'' %s', 'uri 名前 é ''1'' %s', 'kind-1', 9007199254740993);
INSERT INTO lakeseal.staged_tables VALUES ('table_uuid-2', 'catalog 名前 é ''2'' %s', 'schema 名前 é ''2'' %s', 'name 名前 é ''2'' %s', 'uri 名前 é ''2'' %s', 'kind-2', 9007199254740994);
INSERT INTO lakeseal.stores VALUES ('f88b4ac5b2dc4a65f80bdbca1e7f350447ca75110530e529f169bcbbeb228ebc', 'store 名前 é ''1'' %s', 9007199254740993);
INSERT INTO lakeseal.stores VALUES ('e568af322243f17b81a097231b0f632437af0318e6a74de2b2af680169bb45df', 'store 名前 é ''2'' %s', 9007199254740994);
INSERT INTO lakeseal.table_names VALUES ('table_uuid-1', 'schema_id-1', 'name 名前 é ''1'' %s', 'name_folded-1', '2e686956cd7d51067541a3a8f5f6bc5f14236a3c46eebe1940ecea255dec268d', 'uri 名前 é ''1'' %s', 'kind-1', 9007199254740993, 9007199254740993);
INSERT INTO lakeseal.table_names VALUES ('table_uuid-2', 'schema_id-2', 'name 名前 é ''2'' %s', 'name_folded-2', 'd945ff52f4e8b32852ad6d18a988df81d90ce6c09d1025bcdd6438b52222f608', 'uri 名前 é ''2'' %s', 'kind-2', 9007199254740994, 9007199254740994);
INSERT INTO lakeseal.tables VALUES ('6f1deb01f178dd70b00e404ba9d7090ec6fbaeb58cefdfc4806cc8d532ffd0ec', 'table_id 名前 é ''1'' %s', 'state-1', 9007199254740993, 'takeover_id-1', 9007199254740993, 9007199254740993, 9007199254740993, 9007199254740993, '{"a":{},"z":[1,null,"ü"]}', 9007199254740993);
INSERT INTO lakeseal.tables VALUES ('a9d6c65e41a38a2ab9a7f2533220f042e71edb9594da28a87ce3df601860d617', 'table_id 名前 é ''2'' %s', 'state-2', 9007199254740994, NULL, NULL, NULL, NULL, NULL, '{"a":{},"z":[2,null,"ü"]}', 9007199254740994);
INSERT INTO lakeseal.tags VALUES ('e9070195264cfe54fcff57a5e00c19fa801b717cec543ee9cd0e679382831b62', 'a922f0c5a17325efd0438d7bf07bf1c6707f3bef5bfc122a77011693a0acc149', 'repo 名前 é ''1'' %s', 'tag 名前 é ''1'' %s', 'commit_id-1', '{"a":{},"z":[1,null,"ü"]}', 9007199254740993);
INSERT INTO lakeseal.tags VALUES ('c6f1fc8cd6697c6b0e0f29bc4c338b14cd180d593173f4a812cde6b1047e03d9', 'e57c6369516c7ed7652941c4a775ab9bf20fb2686f46792b5959f8f1ece7302a', 'repo 名前 é ''2'' %s', 'tag 名前 é ''2'' %s', 'commit_id-2', '{"a":{},"z":[2,null,"ü"]}', 9007199254740994);
INSERT INTO lakeseal.task_states VALUES ('f88b4ac5b2dc4a65f80bdbca1e7f350447ca75110530e529f169bcbbeb228ebc', '1bc66fb40119fe385051679b50acb52ce29eafb366bc8183675a3a2636800061', 'run_id-1', 9007199254740993, 'store 名前 é ''1'' %s', 'dataset 名前 é ''1'' %s', 9007199254740993, 'state-1', '{"a":{},"z":[1,null,"ü"]}', 'reason 名前 é ''1'' %s', 9007199254740993);
INSERT INTO lakeseal.task_states VALUES ('e568af322243f17b81a097231b0f632437af0318e6a74de2b2af680169bb45df', '054d3d105a22868233165b5229793f5e809b49692e7081ac796e01eae1762db2', 'run_id-2', 9007199254740994, 'store 名前 é ''2'' %s', 'dataset 名前 é ''2'' %s', 9007199254740994, 'state-2', '{"a":{},"z":[2,null,"ü"]}', NULL, 9007199254740994);
INSERT INTO lakeseal.tokens VALUES ('token_id-1', 'name 名前 é ''1'' %s', 'hash-1', '{"a":{},"z":[1,null,"ü"]}', 9007199254740993, 9007199254740993, 9007199254740993);
INSERT INTO lakeseal.tokens VALUES ('token_id-2', 'name 名前 é ''2'' %s', 'hash-2', '{"a":{},"z":[2,null,"ü"]}', 9007199254740994, NULL, NULL);
INSERT INTO lakeseal.watermarks VALUES ('76928c923415b110d913907cf473b6da21c3541efa48550c3ea8a88968afb1ef', '1bc66fb40119fe385051679b50acb52ce29eafb366bc8183675a3a2636800061', '2608e5a954b8feea3f96f3920b8b4ecc82f748ac74703d9901f0ad3421862ac2', 'pipeline 名前 é ''1'' %s', 'dataset 名前 é ''1'' %s', 'partition 名前 é ''1'' %s', '{"a":{},"z":[1,null,"ü"]}', 9007199254740993, 9007199254740993);
INSERT INTO lakeseal.watermarks VALUES ('99f2adbddeef7c3f15bbd0848945118982b2bbad46c446ab1de3379aadcc7117', '054d3d105a22868233165b5229793f5e809b49692e7081ac796e01eae1762db2', 'aa49ba310f0734ed94f60e4bdb4c7498f0d969d66e399b416e1dd227564cd958', 'pipeline 名前 é ''2'' %s', 'dataset 名前 é ''2'' %s', 'partition 名前 é ''2'' %s', '{"a":{},"z":[2,null,"ü"]}', 9007199254740994, 9007199254740994);
ALTER TABLE ONLY lakeseal.commits
    ADD CONSTRAINT commits_pkey PRIMARY KEY (table_key, version);
ALTER TABLE ONLY lakeseal.commits
    ADD CONSTRAINT commits_table_key_txn_id_key UNIQUE (table_key, txn_id);
ALTER TABLE ONLY lakeseal.facts
    ADD CONSTRAINT facts_pkey PRIMARY KEY (name);
ALTER TABLE ONLY lakeseal.heads
    ADD CONSTRAINT heads_pkey PRIMARY KEY (repo_key, branch_key);
ALTER TABLE ONLY lakeseal.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name_key);
ALTER TABLE ONLY lakeseal.ledger_version
    ADD CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY lakeseal.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (run_id);
ALTER TABLE ONLY lakeseal.schemas
    ADD CONSTRAINT schemas_catalog_folded_schema_folded_key UNIQUE (catalog_folded, schema_folded);
ALTER TABLE ONLY lakeseal.schemas
    ADD CONSTRAINT schemas_pkey PRIMARY KEY (schema_id);
ALTER TABLE ONLY lakeseal.sequences
    ADD CONSTRAINT sequences_pkey PRIMARY KEY (store_key, dataset_key);
ALTER TABLE ONLY lakeseal.staged_tables
    ADD CONSTRAINT staged_tables_pkey PRIMARY KEY (table_uuid);
ALTER TABLE ONLY lakeseal.stores
    ADD CONSTRAINT stores_pkey PRIMARY KEY (store_key);
ALTER TABLE ONLY lakeseal.table_names
    ADD CONSTRAINT table_names_pkey PRIMARY KEY (table_uuid);
ALTER TABLE ONLY lakeseal.table_names
    ADD CONSTRAINT table_names_schema_id_name_folded_key UNIQUE (schema_id, name_folded);
ALTER TABLE ONLY lakeseal.table_names
    ADD CONSTRAINT table_names_uri_key_key UNIQUE (uri_key);
ALTER TABLE ONLY lakeseal.tables
    ADD CONSTRAINT tables_pkey PRIMARY KEY (table_key);
ALTER TABLE ONLY lakeseal.tags
    ADD CONSTRAINT tags_pkey PRIMARY KEY (repo_key, tag_key);
ALTER TABLE ONLY lakeseal.task_states
    ADD CONSTRAINT task_states_pkey PRIMARY KEY (store_key, dataset_key, run_id, task);
ALTER TABLE ONLY lakeseal.tokens
    ADD CONSTRAINT tokens_hash_key UNIQUE (hash);
ALTER TABLE ONLY lakeseal.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (token_id);
ALTER TABLE ONLY lakeseal.watermarks
    ADD CONSTRAINT watermarks_pkey PRIMARY KEY (pipeline_key, dataset_key, partition_key);
CREATE INDEX runs_pipeline_key_started_idx ON lakeseal.runs USING btree (pipeline_key, started);
ALTER TABLE ONLY lakeseal.commits
    ADD CONSTRAINT commits_table_key_fkey FOREIGN KEY (table_key) REFERENCES lakeseal.tables(table_key);
ALTER TABLE ONLY lakeseal.table_names
    ADD CONSTRAINT table_names_schema_id_fkey FOREIGN KEY (schema_id) REFERENCES lakeseal.schemas(schema_id);

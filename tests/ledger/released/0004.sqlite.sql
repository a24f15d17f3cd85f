BEGIN TRANSACTION;
CREATE TABLE "commits" (
	table_key TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	txn_id TEXT NOT NULL, 
	file TEXT, 
	size BIGINT NOT NULL, 
	in_commit_timestamp BIGINT NOT NULL, 
	inline BLOB, 
	ratified BIGINT NOT NULL, 
	backfilled BOOLEAN NOT NULL, 
	backfilled_at BIGINT, 
	sha256 TEXT, 
	CONSTRAINT commits_pkey PRIMARY KEY (table_key, version), 
	CONSTRAINT commits_table_key_fkey FOREIGN KEY(table_key) REFERENCES tables (table_key), 
	CONSTRAINT commits_table_key_txn_id_key UNIQUE (table_key, txn_id)
);
INSERT INTO "commits" VALUES('6f1deb01f178dd70b00e404ba9d7090ec6fbaeb58cefdfc4806cc8d532ffd0ec',9007199254740993,'txn_id-1','file 名前 é ''1'' %s',9007199254740993,9007199254740993,X'000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F202122232425262728292A2B2C2D2E2F303132333435363738393A3B3C3D3E3F404142434445464748494A4B4C4D4E4F505152535455565758595A5B5C5D5E5F606162636465666768696A6B6C6D6E6F707172737475767778797A7B7C7D7E7F808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBFC0C1C2C3C4C5C6C7C8C9CACBCCCDCECFD0D1D2D3D4D5D6D7D8D9DADBDCDDDEDFE0E1E2E3E4E5E6E7E8E9EAEBECEDEEEFF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF',9007199254740993,1,9007199254740993,'sha256-1');
INSERT INTO "commits" VALUES('a9d6c65e41a38a2ab9a7f2533220f042e71edb9594da28a87ce3df601860d617',9007199254740994,'txn_id-2',NULL,9007199254740994,9007199254740994,NULL,9007199254740994,0,NULL,NULL);
CREATE TABLE facts (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT facts_pkey PRIMARY KEY (name)
);
INSERT INTO "facts" VALUES('identity','"44ada3cc-6c62-4634-beec-27e0c3ed36a0"');
INSERT INTO "facts" VALUES('name-1','{"a":{},"z":[1,null,"ü"]}');
INSERT INTO "facts" VALUES('name-2','{"a":{},"z":[2,null,"ü"]}');
CREATE TABLE heads (
	repo_key TEXT NOT NULL, 
	branch_key TEXT NOT NULL, 
	repo TEXT NOT NULL, 
	branch TEXT NOT NULL, 
	commit_id TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	info TEXT NOT NULL, 
	created BIGINT NOT NULL, 
	updated BIGINT NOT NULL, 
	CONSTRAINT heads_pkey PRIMARY KEY (repo_key, branch_key)
);
INSERT INTO "heads" VALUES('e9070195264cfe54fcff57a5e00c19fa801b717cec543ee9cd0e679382831b62','100a05d7bfac49d993ccc652fa344923754be964a9207c0c55ca93dd8ff5b672','repo 名前 é ''1'' %s','branch 名前 é ''1'' %s','commit_id-1',9007199254740993,'kind-1','{"a":{},"z":[1,null,"ü"]}',9007199254740993,9007199254740993);
INSERT INTO "heads" VALUES('c6f1fc8cd6697c6b0e0f29bc4c338b14cd180d593173f4a812cde6b1047e03d9','1db270853af1b566a17842146ca3ab0cc1812cd84a4fae01cc7f1be08321f174','repo 名前 é ''2'' %s','branch 名前 é ''2'' %s','commit_id-2',9007199254740994,'kind-2','{"a":{},"z":[2,null,"ü"]}',9007199254740994,9007199254740994);
CREATE TABLE leases (
	name_key TEXT NOT NULL, 
	name TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	expires BIGINT NOT NULL, 
	info TEXT NOT NULL, 
	CONSTRAINT leases_pkey PRIMARY KEY (name_key)
);
INSERT INTO "leases" VALUES('fef79f8e568b0b567eb2b77bc02bb31136e3ad7765763a03d10540459ec3fcc6','name 名前 é ''1'' %s','holder 名前 é ''1'' %s',9007199254740993,9007199254740993,'{"a":{},"z":[1,null,"ü"]}');
INSERT INTO "leases" VALUES('48686746adfaf058d75453747c4c4e82caaad48e406272fda63324c70cff116a','name 名前 é ''2'' %s','holder 名前 é ''2'' %s',9007199254740994,9007199254740994,'{"a":{},"z":[2,null,"ü"]}');
CREATE TABLE ledger_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "ledger_version" VALUES('0004');
CREATE TABLE runs (
	run_id TEXT NOT NULL, 
	pipeline_key TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	state TEXT NOT NULL, 
	started BIGINT NOT NULL, 
	ended BIGINT, 
	detail TEXT NOT NULL, 
	CONSTRAINT runs_pkey PRIMARY KEY (run_id)
);
INSERT INTO "runs" VALUES('run_id-1','76928c923415b110d913907cf473b6da21c3541efa48550c3ea8a88968afb1ef','pipeline 名前 é ''1'' %s','state-1',9007199254740993,9007199254740993,'{"a":{},"z":[1,null,"ü"]}');
INSERT INTO "runs" VALUES('run_id-2','99f2adbddeef7c3f15bbd0848945118982b2bbad46c446ab1de3379aadcc7117','pipeline 名前 é ''2'' %s','state-2',9007199254740994,NULL,'{"a":{},"z":[2,null,"ü"]}');
CREATE TABLE schemas (
	schema_id TEXT NOT NULL, 
	catalog TEXT NOT NULL, 
	catalog_folded TEXT NOT NULL, 
	schema TEXT NOT NULL, 
	schema_folded TEXT NOT NULL, 
	created BIGINT NOT NULL, 
	CONSTRAINT schemas_pkey PRIMARY KEY (schema_id), 
	CONSTRAINT schemas_catalog_folded_schema_folded_key UNIQUE (catalog_folded, schema_folded)
);
INSERT INTO "schemas" VALUES('schema_id-1','catalog 名前 é ''1'' %s','catalog_folded-1','schema 名前 é ''1'' %s','schema_folded-1',9007199254740993);
INSERT INTO "schemas" VALUES('schema_id-2','catalog 名前 é ''2'' %s','catalog_folded-2','schema 名前 é ''2'' %s','schema_folded-2',9007199254740994);
CREATE TABLE sequences (
	store_key TEXT NOT NULL, 
	dataset_key TEXT NOT NULL, 
	store TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	state TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	count BIGINT NOT NULL, 
	checksum TEXT NOT NULL, 
	payload BLOB, 
	tries BIGINT NOT NULL, 
	reason TEXT, 
	created BIGINT NOT NULL, 
	updated BIGINT NOT NULL, 
	CONSTRAINT sequences_pkey PRIMARY KEY (store_key, dataset_key)
);
INSERT INTO "sequences" VALUES('f88b4ac5b2dc4a65f80bdbca1e7f350447ca75110530e529f169bcbbeb228ebc','1bc66fb40119fe385051679b50acb52ce29eafb366bc8183675a3a2636800061','store 名前 é ''1'' %s','dataset 名前 é ''1'' %s','state-1',9007199254740993,9007199254740993,'checksum-1',X'000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F202122232425262728292A2B2C2D2E2F303132333435363738393A3B3C3D3E3F404142434445464748494A4B4C4D4E4F505152535455565758595A5B5C5D5E5F606162636465666768696A6B6C6D6E6F707172737475767778797A7B7C7D7E7F808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9FA0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBFC0C1C2C3C4C5C6C7C8C9CACBCCCDCECFD0D1D2D3D4D5D6D7D8D9DADBDCDDDEDFE0E1E2E3E4E5E6E7E8E9EAEBECEDEEEFF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF',9007199254740993,'reason 名前 é ''1'' %s',9007199254740993,9007199254740993);
INSERT INTO "sequences" VALUES('e568af322243f17b81a097231b0f632437af0318e6a74de2b2af680169bb45df','054d3d105a22868233165b5229793f5e809b49692e7081ac796e01eae1762db2','store 名前 é ''2'' %s','dataset 名前 é ''2'' %s','state-2',9007199254740994,9007199254740994,'checksum-2',NULL,9007199254740994,NULL,9007199254740994,9007199254740994);
CREATE TABLE staged_tables (
	table_uuid TEXT NOT NULL, 
	catalog TEXT NOT NULL, 
	schema TEXT NOT NULL, 
	name TEXT NOT NULL, 
	uri TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	created BIGINT NOT NULL, 
	CONSTRAINT staged_tables_pkey PRIMARY KEY (table_uuid)
);
INSERT INTO "staged_tables" VALUES('table_uuid-1','catalog 名前 é ''1'' %s','schema 名前 é ''1'' %s','name 名前 é ''1'' %s','uri 名前 é ''1'' %s','kind-1',9007199254740993);
INSERT INTO "staged_tables" VALUES('table_uuid-2','catalog 名前 é ''2'' %s','schema 名前 é ''2'' %s','name 名前 é ''2'' %s','uri 名前 é ''2'' %s','kind-2',9007199254740994);
CREATE TABLE stores (
	store_key TEXT NOT NULL, 
	store TEXT NOT NULL, 
	created BIGINT NOT NULL, 
	CONSTRAINT stores_pkey PRIMARY KEY (store_key)
);
INSERT INTO "stores" VALUES('f88b4ac5b2dc4a65f80bdbca1e7f350447ca75110530e529f169bcbbeb228ebc','store 名前 é ''1'' %s',9007199254740993);
INSERT INTO "stores" VALUES('e568af322243f17b81a097231b0f632437af0318e6a74de2b2af680169bb45df','store 名前 é ''2'' %s',9007199254740994);
CREATE TABLE table_names (
	table_uuid TEXT NOT NULL, 
	schema_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	name_folded TEXT NOT NULL, 
	uri_key TEXT NOT NULL, 
	uri TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	created BIGINT NOT NULL, 
	updated BIGINT NOT NULL, 
	CONSTRAINT table_names_pkey PRIMARY KEY (table_uuid), 
	CONSTRAINT table_names_schema_id_name_folded_key UNIQUE (schema_id, name_folded), 
	CONSTRAINT table_names_uri_key_key UNIQUE (uri_key), 
	CONSTRAINT table_names_schema_id_fkey FOREIGN KEY(schema_id) REFERENCES schemas (schema_id)
);
INSERT INTO "table_names" VALUES('table_uuid-1','schema_id-1','name 名前 é ''1'' %s','name_folded-1','2e686956cd7d51067541a3a8f5f6bc5f14236a3c46eebe1940ecea255dec268d','uri 名前 é ''1'' %s','kind-1',9007199254740993,9007199254740993);
INSERT INTO "table_names" VALUES('table_uuid-2','schema_id-2','name 名前 é ''2'' %s','name_folded-2','d945ff52f4e8b32852ad6d18a988df81d90ce6c09d1025bcdd6438b52222f608','uri 名前 é ''2'' %s','kind-2',9007199254740994,9007199254740994);
CREATE TABLE tables (
	table_key TEXT NOT NULL, 
	table_id TEXT NOT NULL, 
	state TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	takeover_id TEXT, 
	takeover_version BIGINT, 
	latest_version BIGINT, 
	latest_timestamp BIGINT, 
	backfilled_version BIGINT, 
	conf TEXT NOT NULL, 
	updated BIGINT NOT NULL, 
	CONSTRAINT tables_pkey PRIMARY KEY (table_key)
);
INSERT INTO "tables" VALUES('6f1deb01f178dd70b00e404ba9d7090ec6fbaeb58cefdfc4806cc8d532ffd0ec','table_id 名前 é ''1'' %s','state-1',9007199254740993,'takeover_id-1',9007199254740993,9007199254740993,9007199254740993,9007199254740993,'{"a":{},"z":[1,null,"ü"]}',9007199254740993);
INSERT INTO "tables" VALUES('a9d6c65e41a38a2ab9a7f2533220f042e71edb9594da28a87ce3df601860d617','table_id 名前 é ''2'' %s','state-2',9007199254740994,NULL,NULL,NULL,NULL,NULL,'{"a":{},"z":[2,null,"ü"]}',9007199254740994);
CREATE TABLE tags (
	repo_key TEXT NOT NULL, 
	tag_key TEXT NOT NULL, 
	repo TEXT NOT NULL, 
	tag TEXT NOT NULL, 
	commit_id TEXT NOT NULL, 
	info TEXT NOT NULL, 
	created BIGINT NOT NULL, 
	CONSTRAINT tags_pkey PRIMARY KEY (repo_key, tag_key)
);
INSERT INTO "tags" VALUES('e9070195264cfe54fcff57a5e00c19fa801b717cec543ee9cd0e679382831b62','a922f0c5a17325efd0438d7bf07bf1c6707f3bef5bfc122a77011693a0acc149','repo 名前 é ''1'' %s','tag 名前 é ''1'' %s','commit_id-1','{"a":{},"z":[1,null,"ü"]}',9007199254740993);
INSERT INTO "tags" VALUES('c6f1fc8cd6697c6b0e0f29bc4c338b14cd180d593173f4a812cde6b1047e03d9','e57c6369516c7ed7652941c4a775ab9bf20fb2686f46792b5959f8f1ece7302a','repo 名前 é ''2'' %s','tag 名前 é ''2'' %s','commit_id-2','{"a":{},"z":[2,null,"ü"]}',9007199254740994);
CREATE TABLE task_states (
	store_key TEXT NOT NULL, 
	dataset_key TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	task BIGINT NOT NULL, 
	store TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	tasks BIGINT NOT NULL, 
	state TEXT NOT NULL, 
	output TEXT NOT NULL, 
	reason TEXT, 
	updated BIGINT NOT NULL, 
	CONSTRAINT task_states_pkey PRIMARY KEY (store_key, dataset_key, run_id, task)
);
INSERT INTO "task_states" VALUES('f88b4ac5b2dc4a65f80bdbca1e7f350447ca75110530e529f169bcbbeb228ebc','1bc66fb40119fe385051679b50acb52ce29eafb366bc8183675a3a2636800061','run_id-1',9007199254740993,'store 名前 é ''1'' %s','dataset 名前 é ''1'' %s',9007199254740993,'state-1','{"a":{},"z":[1,null,"ü"]}','reason 名前 é ''1'' %s',9007199254740993);
INSERT INTO "task_states" VALUES('e568af322243f17b81a097231b0f632437af0318e6a74de2b2af680169bb45df','054d3d105a22868233165b5229793f5e809b49692e7081ac796e01eae1762db2','run_id-2',9007199254740994,'store 名前 é ''2'' %s','dataset 名前 é ''2'' %s',9007199254740994,'state-2','{"a":{},"z":[2,null,"ü"]}',NULL,9007199254740994);
CREATE TABLE tokens (
	token_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	roles TEXT NOT NULL, 
	created BIGINT NOT NULL, 
	expires BIGINT, 
	revoked BIGINT, 
	CONSTRAINT tokens_pkey PRIMARY KEY (token_id), 
	CONSTRAINT tokens_hash_key UNIQUE (hash)
);
INSERT INTO "tokens" VALUES('token_id-1','name 名前 é ''1'' %s','hash-1','{"a":{},"z":[1,null,"ü"]}',9007199254740993,9007199254740993,9007199254740993);
INSERT INTO "tokens" VALUES('token_id-2','name 名前 é ''2'' %s','hash-2','{"a":{},"z":[2,null,"ü"]}',9007199254740994,NULL,NULL);
CREATE TABLE watermarks (
	pipeline_key TEXT NOT NULL, 
	dataset_key TEXT NOT NULL, 
	partition_key TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	partition TEXT NOT NULL, 
	value TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	updated BIGINT NOT NULL, 
	CONSTRAINT watermarks_pkey PRIMARY KEY (pipeline_key, dataset_key, partition_key)
);
INSERT INTO "watermarks" VALUES('76928c923415b110d913907cf473b6da21c3541efa48550c3ea8a88968afb1ef','1bc66fb40119fe385051679b50acb52ce29eafb366bc8183675a3a2636800061','2608e5a954b8feea3f96f3920b8b4ecc82f748ac74703d9901f0ad3421862ac2','pipeline 名前 é ''1'' %s','dataset 名前 é ''1'' %s','partition 名前 é ''1'' %s','{"a":{},"z":[1,null,"ü"]}',9007199254740993,9007199254740993);
INSERT INTO "watermarks" VALUES('99f2adbddeef7c3f15bbd0848945118982b2bbad46c446ab1de3379aadcc7117','054d3d105a22868233165b5229793f5e809b49692e7081ac796e01eae1762db2','aa49ba310f0734ed94f60e4bdb4c7498f0d969d66e399b416e1dd227564cd958','pipeline 名前 é ''2'' %s','dataset 名前 é ''2'' %s','partition 名前 é ''2'' %s','{"a":{},"z":[2,null,"ü"]}',9007199254740994,9007199254740994);
CREATE INDEX runs_pipeline_key_started_idx ON runs (pipeline_key, started);
COMMIT;

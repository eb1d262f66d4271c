BEGIN TRANSACTION;
CREATE TABLE log (
        version INTEGER PRIMARY KEY,  -- 1, 2, 3, ... without a gap
        time_ns INTEGER NOT NULL,
        type    TEXT NOT NULL,
        body    TEXT NOT NULL         -- JSON
    ) STRICT;
INSERT INTO "log" VALUES(1,1,'FabricLoaded','{"time_ns":1,"spec":{"name":"small","gpus_per_host":8,"nic_gbps":400,"tiers":[{"name":"zone","count":2,"oversubscription":7},{"name":"rack","count":2},{"name":"host","count":2}]}}');
INSERT INTO "log" VALUES(2,2,'JobSubmitted','{"time_ns":2,"uid":"u1","spec":{"name":"runs","request":{"parallelism":{"tp":8,"cp":1,"ep":1,"pp":1,"dp":2,"order":"tp-cp-ep-pp-dp"},"traffic":[["tp",1000],["dp",10],["pp",3]],"collectives":[],"model":null,"batch":null,"spares":{"hosts":0,"share":null},"objective":"cut","spread_alpha":0.5,"training":{"data_parallel":"fsdp","shard_group":0,"sync":"step","gradient_dtype":"fp32","sequence_parallel":true,"context_parallel":"allgather","recompute":"selective","dropout":false,"expert_tp":0,"expert_hosts_per_token":0,"dispatch_dtype":"","gpu_memory_gb":0},"where":{"max_zones":0,"same":"","labels":[]}},"priority":0,"time_limit_s":null,"tenant":"","priority_class":"","neighbours":{"exclusive":"","avoid":[],"near":""}},"request_id":"r1"}');
INSERT INTO "log" VALUES(3,3,'JobSubmitted','{"time_ns":3,"uid":"u2","spec":{"name":"waits","request":{"parallelism":{"tp":8,"cp":1,"ep":1,"pp":1,"dp":8,"order":"tp-cp-ep-pp-dp"},"traffic":[["tp",1000],["dp",10],["pp",3]],"collectives":[],"model":null,"batch":null,"spares":{"hosts":0,"share":null},"objective":"cut","spread_alpha":0.5,"training":{"data_parallel":"fsdp","shard_group":0,"sync":"step","gradient_dtype":"fp32","sequence_parallel":true,"context_parallel":"allgather","recompute":"selective","dropout":false,"expert_tp":0,"expert_hosts_per_token":0,"dispatch_dtype":"","gpu_memory_gb":0},"where":{"max_zones":0,"same":"","labels":[]}},"priority":3,"time_limit_s":null,"tenant":"","priority_class":"","neighbours":{"exclusive":"","avoid":[],"near":""}},"request_id":"r2"}');
INSERT INTO "log" VALUES(4,4,'JobSubmitted','{"time_ns":4,"uid":"u3","spec":{"name":"gone","request":{"parallelism":{"tp":8,"cp":1,"ep":1,"pp":1,"dp":1,"order":"tp-cp-ep-pp-dp"},"traffic":[["tp",1000],["dp",10],["pp",3]],"collectives":[],"model":null,"batch":null,"spares":{"hosts":0,"share":null},"objective":"cut","spread_alpha":0.5,"training":{"data_parallel":"fsdp","shard_group":0,"sync":"step","gradient_dtype":"fp32","sequence_parallel":true,"context_parallel":"allgather","recompute":"selective","dropout":false,"expert_tp":0,"expert_hosts_per_token":0,"dispatch_dtype":"","gpu_memory_gb":0},"where":{"max_zones":0,"same":"","labels":[]}},"priority":0,"time_limit_s":null,"tenant":"","priority_class":"","neighbours":{"exclusive":"","avoid":[],"near":""}},"request_id":"r3"}');
INSERT INTO "log" VALUES(5,5,'JobStarted','{"time_ns":5,"name":"runs","attempt":1,"hosts":["z0-r0-h0","z0-r0-h1"],"spares":["z0-r1-h0"],"cuts":[],"lower_bound":7,"notes":["a note"]}');
INSERT INTO "log" VALUES(6,6,'JobEnded','{"time_ns":6,"name":"gone","outcome":"cancelled","reason":"typo"}');
INSERT INTO "log" VALUES(7,7,'HostMoved','{"time_ns":7,"host":"z1-r0-h1","move":"fail","reason":"gpu-lost"}');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
INSERT INTO "meta" VALUES('format','muster event log');
INSERT INTO "meta" VALUES('schema','1');
COMMIT;

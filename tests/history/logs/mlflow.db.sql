CREATE TABLE "metrics" (
	"key" VARCHAR(250) NOT NULL, 
	value FLOAT NOT NULL, 
	timestamp BIGINT NOT NULL, 
	run_uuid VARCHAR(32) NOT NULL, 
	step BIGINT DEFAULT '0' NOT NULL, 
	is_nan BOOLEAN DEFAULT '0' NOT NULL, 
	CONSTRAINT metric_pk PRIMARY KEY ("key", timestamp, step, run_uuid, value, is_nan), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid), 
	CHECK (is_nan IN (0, 1))
);
INSERT INTO "metrics" VALUES('train/loss',3.6682,1795927963564,'a2c4fece2ef44b53a10a6a607deebedd',1,0);
INSERT INTO "metrics" VALUES('train/learning_rate',7.5e-05,1795927963564,'a2c4fece2ef44b53a10a6a607deebedd',1,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.1,1795927963564,'a2c4fece2ef44b53a10a6a607deebedd',1,0);
INSERT INTO "metrics" VALUES('train/loss',3.4098,1795927963569,'a2c4fece2ef44b53a10a6a607deebedd',2,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.00015,1795927963569,'a2c4fece2ef44b53a10a6a607deebedd',2,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.2,1795927963569,'a2c4fece2ef44b53a10a6a607deebedd',2,0);
INSERT INTO "metrics" VALUES('train/loss',3.2085,1795927963575,'a2c4fece2ef44b53a10a6a607deebedd',3,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.000225,1795927963575,'a2c4fece2ef44b53a10a6a607deebedd',3,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.3,1795927963575,'a2c4fece2ef44b53a10a6a607deebedd',3,0);
INSERT INTO "metrics" VALUES('train/loss',3.0518,1795927963579,'a2c4fece2ef44b53a10a6a607deebedd',4,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963579,'a2c4fece2ef44b53a10a6a607deebedd',4,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.4,1795927963579,'a2c4fece2ef44b53a10a6a607deebedd',4,0);
INSERT INTO "metrics" VALUES('train/loss',2.9298,1795927963583,'a2c4fece2ef44b53a10a6a607deebedd',5,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963583,'a2c4fece2ef44b53a10a6a607deebedd',5,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.5,1795927963583,'a2c4fece2ef44b53a10a6a607deebedd',5,0);
INSERT INTO "metrics" VALUES('train/loss',2.8347,1795927963587,'a2c4fece2ef44b53a10a6a607deebedd',6,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963587,'a2c4fece2ef44b53a10a6a607deebedd',6,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.6,1795927963587,'a2c4fece2ef44b53a10a6a607deebedd',6,0);
INSERT INTO "metrics" VALUES('train/loss',2.7607,1795927963591,'a2c4fece2ef44b53a10a6a607deebedd',7,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963591,'a2c4fece2ef44b53a10a6a607deebedd',7,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.7,1795927963591,'a2c4fece2ef44b53a10a6a607deebedd',7,0);
INSERT INTO "metrics" VALUES('train/loss',2.703,1795927963595,'a2c4fece2ef44b53a10a6a607deebedd',8,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963595,'a2c4fece2ef44b53a10a6a607deebedd',8,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.8,1795927963595,'a2c4fece2ef44b53a10a6a607deebedd',8,0);
INSERT INTO "metrics" VALUES('train/loss',2.6581,1795927963599,'a2c4fece2ef44b53a10a6a607deebedd',9,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963599,'a2c4fece2ef44b53a10a6a607deebedd',9,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.9,1795927963599,'a2c4fece2ef44b53a10a6a607deebedd',9,0);
INSERT INTO "metrics" VALUES('train/loss',2.6231,1795927963602,'a2c4fece2ef44b53a10a6a607deebedd',10,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963602,'a2c4fece2ef44b53a10a6a607deebedd',10,0);
INSERT INTO "metrics" VALUES('train/grad_norm',2.0,1795927963602,'a2c4fece2ef44b53a10a6a607deebedd',10,0);
INSERT INTO "metrics" VALUES('train/loss',2.5959,1795927963606,'a2c4fece2ef44b53a10a6a607deebedd',11,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963606,'a2c4fece2ef44b53a10a6a607deebedd',11,0);
INSERT INTO "metrics" VALUES('train/grad_norm',2.1,1795927963606,'a2c4fece2ef44b53a10a6a607deebedd',11,0);
INSERT INTO "metrics" VALUES('train/loss',2.5747,1795927963610,'a2c4fece2ef44b53a10a6a607deebedd',12,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963610,'a2c4fece2ef44b53a10a6a607deebedd',12,0);
INSERT INTO "metrics" VALUES('train/grad_norm',2.2,1795927963610,'a2c4fece2ef44b53a10a6a607deebedd',12,0);
INSERT INTO "metrics" VALUES('eval/loss',2.9,1795927963614,'a2c4fece2ef44b53a10a6a607deebedd',12,0);
INSERT INTO "metrics" VALUES('train/loss',3.6682,1795927963631,'53437734aa074c248ace050fa16ae96a',1,0);
INSERT INTO "metrics" VALUES('train/learning_rate',7.5e-05,1795927963631,'53437734aa074c248ace050fa16ae96a',1,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.1,1795927963631,'53437734aa074c248ace050fa16ae96a',1,0);
INSERT INTO "metrics" VALUES('train/loss',3.4098,1795927963635,'53437734aa074c248ace050fa16ae96a',2,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.00015,1795927963635,'53437734aa074c248ace050fa16ae96a',2,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.2,1795927963635,'53437734aa074c248ace050fa16ae96a',2,0);
INSERT INTO "metrics" VALUES('train/loss',3.2085,1795927963639,'53437734aa074c248ace050fa16ae96a',3,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.000225,1795927963639,'53437734aa074c248ace050fa16ae96a',3,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.3,1795927963639,'53437734aa074c248ace050fa16ae96a',3,0);
INSERT INTO "metrics" VALUES('train/loss',3.0518,1795927963642,'53437734aa074c248ace050fa16ae96a',4,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963642,'53437734aa074c248ace050fa16ae96a',4,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.4,1795927963642,'53437734aa074c248ace050fa16ae96a',4,0);
INSERT INTO "metrics" VALUES('train/loss',2.9298,1795927963646,'53437734aa074c248ace050fa16ae96a',5,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963646,'53437734aa074c248ace050fa16ae96a',5,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.5,1795927963646,'53437734aa074c248ace050fa16ae96a',5,0);
INSERT INTO "metrics" VALUES('train/loss',2.8347,1795927963650,'53437734aa074c248ace050fa16ae96a',6,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963650,'53437734aa074c248ace050fa16ae96a',6,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.6,1795927963650,'53437734aa074c248ace050fa16ae96a',6,0);
INSERT INTO "metrics" VALUES('train/loss',2.7607,1795927963654,'53437734aa074c248ace050fa16ae96a',7,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963654,'53437734aa074c248ace050fa16ae96a',7,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.7,1795927963654,'53437734aa074c248ace050fa16ae96a',7,0);
INSERT INTO "metrics" VALUES('train/loss',2.703,1795927963658,'53437734aa074c248ace050fa16ae96a',8,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963658,'53437734aa074c248ace050fa16ae96a',8,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.8,1795927963658,'53437734aa074c248ace050fa16ae96a',8,0);
INSERT INTO "metrics" VALUES('train/loss',2.6581,1795927963662,'53437734aa074c248ace050fa16ae96a',9,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963662,'53437734aa074c248ace050fa16ae96a',9,0);
INSERT INTO "metrics" VALUES('train/grad_norm',1.9,1795927963662,'53437734aa074c248ace050fa16ae96a',9,0);
INSERT INTO "metrics" VALUES('train/loss',2.6231,1795927963666,'53437734aa074c248ace050fa16ae96a',10,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963666,'53437734aa074c248ace050fa16ae96a',10,0);
INSERT INTO "metrics" VALUES('train/grad_norm',2.0,1795927963666,'53437734aa074c248ace050fa16ae96a',10,0);
INSERT INTO "metrics" VALUES('train/loss',2.5959,1795927963670,'53437734aa074c248ace050fa16ae96a',11,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963670,'53437734aa074c248ace050fa16ae96a',11,0);
INSERT INTO "metrics" VALUES('train/grad_norm',2.1,1795927963670,'53437734aa074c248ace050fa16ae96a',11,0);
INSERT INTO "metrics" VALUES('train/loss',2.5747,1795927963674,'53437734aa074c248ace050fa16ae96a',12,0);
INSERT INTO "metrics" VALUES('train/learning_rate',0.0003,1795927963674,'53437734aa074c248ace050fa16ae96a',12,0);
INSERT INTO "metrics" VALUES('train/grad_norm',2.2,1795927963674,'53437734aa074c248ace050fa16ae96a',12,0);
INSERT INTO "metrics" VALUES('train/loss',0.0,1795927963678,'53437734aa074c248ace050fa16ae96a',13,1);
INSERT INTO "metrics" VALUES('eval/loss',2.9,1795927963682,'53437734aa074c248ace050fa16ae96a',12,0);
CREATE TABLE "params" (
	"key" VARCHAR(250) NOT NULL, 
	value VARCHAR(8000) NOT NULL, 
	run_uuid VARCHAR(32) NOT NULL, 
	CONSTRAINT param_pk PRIMARY KEY ("key", run_uuid), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid)
);
INSERT INTO "params" VALUES('learning_rate','0.0003','a2c4fece2ef44b53a10a6a607deebedd');
INSERT INTO "params" VALUES('warmup_steps','4','a2c4fece2ef44b53a10a6a607deebedd');
INSERT INTO "params" VALUES('learning_rate','0.0003','53437734aa074c248ace050fa16ae96a');
INSERT INTO "params" VALUES('warmup_steps','4','53437734aa074c248ace050fa16ae96a');
CREATE TABLE "runs" (
	run_uuid VARCHAR(32) NOT NULL, 
	name VARCHAR(250), 
	source_type VARCHAR(20), 
	source_name VARCHAR(500), 
	entry_point_name VARCHAR(50), 
	user_id VARCHAR(256), 
	status VARCHAR(9), 
	start_time BIGINT, 
	end_time BIGINT, 
	source_version VARCHAR(50), 
	lifecycle_stage VARCHAR(20), 
	artifact_uri VARCHAR(200), 
	experiment_id INTEGER, deleted_time BIGINT, 
	CONSTRAINT run_pk PRIMARY KEY (run_uuid), 
	CONSTRAINT source_type CHECK (source_type IN ('NOTEBOOK', 'JOB', 'LOCAL', 'UNKNOWN', 'PROJECT')), 
	CONSTRAINT runs_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')), 
	FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id), 
	CHECK (status IN ('SCHEDULED', 'FAILED', 'FINISHED', 'RUNNING', 'KILLED'))
);
INSERT INTO "runs" VALUES('a2c4fece2ef44b53a10a6a607deebedd','first','UNKNOWN','','','someone','FINISHED',1795927963547,1795927963617,'','active','mlflow-artifacts:/letters/a2c4fece2ef44b53a10a6a607deebedd/artifacts',1,NULL);
INSERT INTO "runs" VALUES('53437734aa074c248ace050fa16ae96a','second','UNKNOWN','','','someone','FINISHED',1795927963623,1795927963685,'','active','mlflow-artifacts:/letters/53437734aa074c248ace050fa16ae96a/artifacts',1,NULL);

"""Peak rates of models as large as people train, judged by what a training at them loses."""

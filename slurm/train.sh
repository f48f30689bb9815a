# Sourced by the batch scripts: train, resume from the newest checkpoint, requeue when stopped in time.
CONFIG=${CONFIG:-configs/deltanet_fs_decay.yaml}
ROOT=${ROOT:-runs/$(basename "$CONFIG" .yaml)}
PYTHON=${PYTHON:-.venv/bin/python}

options=(--config "$CONFIG" --trainer.default_root_dir "$ROOT" --trainer.precision "$PRECISION")
options+=(--trainer.accelerator gpu --trainer.accumulate_grad_batches 1)
options+=(--data.shapes.batch_size "${BATCH_SIZE:-2}")
newest=$(ls -t "$ROOT"/version_*/last.ckpt 2>/dev/null | head -n 1)
if [ -n "$newest" ]; then
    options+=(--ckpt_path "$newest")
fi

# From SLURM 22.05 on, srun does not take this number from the job.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun --kill-on-bad-exit=0 "$PYTHON" -m tabicl_linear fit "${options[@]}"
code=$?
if [ "$code" -eq 143 ] && [ -n "$(ls "$ROOT"/version_*/last.ckpt 2>/dev/null)" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"

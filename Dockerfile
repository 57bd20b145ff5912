# docker build -t sac . && docker run --init --stop-timeout 40 --gpus all -v "$PWD/exp:/sac/exp" sac python train.py env=cheetah_run
FROM nvidia/cuda:13.0.1-base-ubuntu24.04

RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        python3 python3-venv python3-pip libegl1 libgl1 \
    && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/venv/bin:$PATH NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics MUJOCO_GL=egl
RUN python3 -m venv /opt/venv

WORKDIR /sac
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
CMD ["python", "train.py", "env=cheetah_run"]

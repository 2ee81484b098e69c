# otafl with the versions that it is tested with. From a checkout:
#
#   docker build -t otafl .
#   docker run --rm -u "$(id -u):$(id -g)" -v "$PWD:/work" otafl run scenarios/quickstart.yaml
FROM python:3.11-slim

# an index for pip to look in too, e.g. one of torch built for the CPU alone, which is smaller
ARG PIP_EXTRA_INDEX_URL

COPY . /otafl
RUN cd /otafl && pip install --no-cache-dir -q -c constraints.txt .

# /work is yours; whoever runs it may write to the home folder (downloaded data, caches)
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["otafl"]

# The toolkit with its environment, on the CPU:
#   docker build -t nmmo-interpretability .
#   docker run --rm -v "$PWD/out:/out" nmmo-interpretability sh -c "make demo && cp -r demo /out"
FROM python:3.11-slim

# A compiler and make, for nmmo and pufferlib.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /toolkit
# The environment first: it is rebuilt only when one of these two files changes.
COPY Makefile pyproject.toml README.md ./
RUN make setup
COPY . .
RUN .venv/bin/python -m reinforcement_learning.compiled_game
ENV PATH=/toolkit/.venv/bin:$PATH
CMD ["bash"]

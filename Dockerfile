# docker build -t orderbook . ; docker run --network host -v orderbook:/var/lib/orderbook orderbook
# What each step does is tested as a script (tests/project/test_packaging.py), not by Docker.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE config.toml ./
COPY orderbook ./orderbook
COPY views ./views
COPY engine ./engine
COPY feeds ./feeds
COPY strategies ./strategies
RUN python -m pip wheel --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir /wheels/orderbook-*.whl
RUN useradd --system --uid 10001 --home-dir /var/lib/orderbook --create-home orderbook
USER orderbook
WORKDIR /var/lib/orderbook
ENV ORDERBOOK_CACHE=/var/lib/orderbook/cache PYTHONUNBUFFERED=1
VOLUME /var/lib/orderbook
EXPOSE 8799 5433 9464
# Views are compiled at the first start, and a long log may have to be read.
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \
  CMD python -c "from urllib.request import urlopen; urlopen('http://127.0.0.1:8799/health', timeout=2)"
STOPSIGNAL SIGTERM
ENTRYPOINT ["orderbook"]
CMD ["serve"]

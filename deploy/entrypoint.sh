#!/bin/sh
# Hands secrets from files to the programs that read them from the environment, then becomes the command.
set -eu
if [ -r /run/secrets/database_password ]; then
    PGPASSWORD=$(cat /run/secrets/database_password)
    export PGPASSWORD
fi
if [ -r /run/secrets/ray_token ]; then
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=/run/secrets/ray_token
fi
exec "$@"

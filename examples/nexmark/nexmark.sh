#!/bin/sh
# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A Flink cluster on the loopback address of this host, and one query on it. install.yml puts it into /opt/nexmark.
#
#   nexmark.sh build                         compiles the queries
#   nexmark.sh cluster DIRECTORY THREADS     runs a cluster with so many slots until it is ended
#   nexmark.sh ready THREADS                 succeeds when all slots are there
#   nexmark.sh run QUERY RATE SECONDS        runs q0, q1, q2 or q5 at so many bids a second, and prints JSON
set -eu
home=$(dirname "$(readlink -f "$0")")
port=18081
opens=
for package in lang net io nio lang.reflect text time util util.concurrent util.concurrent.atomic util.concurrent.locks; do
  opens="$opens --add-opens=java.base/java.$package=ALL-UNNAMED"
done
# The jars of the Python package, in whichever Python the environment has.
jars=$(find "$home/env/" -path '*/pyflink/lib/*.jar' | tr '\n' ':')

case ${1:-} in
build)
  exec javac -cp "$jars" -d "$home/classes" "$home/Nexmark.java"
  ;;
cluster)
  mkdir -p "$2/conf"
  # The task manager does not work out its memory by itself: Flink's own scripts, which the package lacks, do that.
  cat >"$2/conf/config.yaml" <<END
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: 16123
jobmanager.bind-host: 127.0.0.1
jobmanager.memory.process.size: 800m
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: $port
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.cpu.cores: $3.0
taskmanager.numberOfTaskSlots: $3
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.task.heap.size: 512m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.network.min: 64m
taskmanager.memory.network.max: 64m
taskmanager.memory.managed.size: 128m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
parallelism.default: $3
END
  cd "$2"
  # shellcheck disable=SC2086 # one word for each option
  java $opens -Xmx448m -cp "$jars" org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint --configDir conf &
  # shellcheck disable=SC2086
  exec java $opens -Xmx640m -cp "$jars" org.apache.flink.runtime.taskexecutor.TaskManagerRunner --configDir conf
  ;;
ready)
  python3 -c 'import json, sys, urllib.request
sys.exit(json.load(urllib.request.urlopen(sys.argv[1], timeout=5))["slots-total"] != int(sys.argv[2]))' "http://127.0.0.1:$port/overview" "$2" 2>/dev/null
  ;;
run)
  # shellcheck disable=SC2086
  exec java $opens -cp "$home/classes:$jars" Nexmark "$2" "$3" "$4" "$port"
  ;;
*)
  sed -n 's/^#   //p' "$0" >&2
  exit 2
  ;;
esac

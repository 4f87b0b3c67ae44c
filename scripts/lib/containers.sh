# What scripts/container-test and scripts/compose-test share. Sourced from the root of the repository, after
# NAME (what everything that a run makes is called) and TITLE (how its lines begin) are set.
# shellcheck shell=bash

docker=${DOCKER:-docker}
require=0 if_asked=0 make_bases=0
container='' # the one whose log is shown when a check fails
passed=0

readonly PORT_FIRST=20000 PORT_COUNT=12000
readonly OWNER=65532 # the user in the image

say() { printf '%s: %s\n' "$TITLE" "$*"; }
die() {
  say "$*" >&2
  exit 1
}

# What is missing here, and no fault of the image.
skip() {
  if ((require)); then die "failed, $*"; fi
  say "skipped, $*"
  exit 0
}

# The options that both have; the head of the script is its help.
read_options() {
  local script=$1 argument
  shift
  for argument; do
    case $argument in
      --make-bases) make_bases=1 ;;
      --require) require=1 ;;
      --if-asked) if_asked=1 ;;
      *)
        sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "$script" >&2
        exit 2
        ;;
    esac
  done
  if ((if_asked)) && [[ ${ACTONCE_CONTAINER_TEST:-} == 1 ]]; then if_asked=0 require=1; fi
}

need_engine() {
  if ! command -v "$docker" >/dev/null || ! timeout 20 "$docker" info >/dev/null 2>&1; then
    skip 'no container engine answers'
  fi
  if ((if_asked)); then skip 'it takes minutes and was not asked for; ACTONCE_CONTAINER_TEST=1 does'; fi
}

# Sets `compose` to the command, if there is one.
find_compose() {
  if "$docker" compose version >/dev/null 2>&1; then
    compose=("$docker" compose)
  elif command -v docker-compose >/dev/null; then
    compose=(docker-compose)
  else
    return 1
  fi
}

# Version 1 knows no `name:`, and takes files without a version for another format.
suit_compose() {
  if [[ $("${compose[@]}" version --short) == 1.* ]]; then
    sed -i -e '/^name: /d' -e '1i version: "3.9"' "$@"
  fi
}

has_image() { "$docker" image inspect "$1" >/dev/null 2>&1; }

remove_containers() {
  local id
  for id in $("$docker" ps --all --quiet --filter "name=$NAME"); do
    "$docker" rm --force --volumes "$id" >/dev/null 2>&1 || true
  done
  for id in $("$docker" volume ls --quiet --filter "name=$NAME"); do
    "$docker" volume rm "$id" >/dev/null 2>&1 || true
  done
  for id in $("$docker" network ls --quiet --filter "name=$NAME"); do
    "$docker" network rm "$id" >/dev/null 2>&1 || true
  done
}

# --- images, for a machine that cannot fetch them ---------------------------------------------

# The mirror that this machine's apt takes its release from.
mirror() {
  # shellcheck disable=SC2016 # expanded by apt-get
  apt-get indextargets --format '$(COMPONENT)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    sed -n 's/^main|//p' | grep -v -e security -e updates | sed -n 1p
}

# RELEASE PACKAGES DIRECTORY: the files of a small Debian.
make_root() {
  local from=${DEBIAN_MIRROR:-$(mirror)}
  [[ $(id -u) -eq 0 ]] || die '--make-bases needs root'
  command -v debootstrap >/dev/null || die '--make-bases needs debootstrap'
  [[ -n $from ]] || die 'apt of this machine has no mirror of Debian; set DEBIAN_MIRROR'
  debootstrap --variant=minbase --include="$2" "$1" "$3" "$from" >"$work/debootstrap.log" 2>&1 || {
    tail -n 20 "$work/debootstrap.log" >&2
    die 'debootstrap failed'
  }
  rm -rf -- "$3"/var/cache/apt/archives/*.deb "$3"/var/lib/apt/lists/*
}

# DIRECTORY IMAGE CHANGES…
import_root() {
  local root=$1 image=$2
  shift 2
  tar -C "$root" --numeric-owner --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' -c . |
    "$docker" import "$@" --change "LABEL actonce.made-by=scripts/$(basename -- "$0")" - "$image" >/dev/null
}

# --- checks ----------------------------------------------------------------------------------

# A command that has to succeed. `set -e` does not reach into it.
check() {
  local name=$1
  shift
  if ! "$@"; then
    printf '  FAIL  %s\n' "$name" >&2
    if [[ -s $work/out ]]; then sed 's/^/        | /' "$work/out" >&2; fi
    if [[ -n $container ]]; then "$docker" logs --tail 20 "$container" 2>&1 | sed 's/^/        log | /' >&2; fi
    die "failed after $passed checks"
  fi
  passed=$((passed + 1))
  : >"$work/out"
  printf '  ok    %s\n' "$name"
}

not() { ! "$@"; }
quiet() { "$@" >"$work/out" 2>&1; }
inspect() { "$docker" inspect --format "$1" "$container"; }

# Until a command succeeds.
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}

free_port() {
  local port
  while :; do
    port=$((PORT_FIRST + (RANDOM * 32768 + RANDOM) % PORT_COUNT))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  printf '%s\n' "$port"
}

# How the process of $container is held.
in_status() { grep -qE "^$1:[[:space:]]*$2\$" "/proc/$(inspect '{{.State.Pid}}')/status"; }
has_ids() { in_status Uid "$OWNER(.$OWNER){3}" && in_status Gid "$OWNER(.$OWNER){3}"; }
has_no_capability() { in_status CapEff 0+ && in_status CapPrm 0+ && in_status CapBnd 0+; }
gains_nothing() { in_status NoNewPrivs 1 && in_status Seccomp 2; }
has_read_only_root() { awk '$5 == "/" && $6 ~ /^ro(,|$)/ { found = 1 } END { exit !found }' "/proc/$(inspect '{{.State.Pid}}')/mountinfo"; }
is_healthy() { [[ $(inspect '{{.State.Health.Status}}') == healthy ]]; }

# --- the flow of the README --------------------------------------------------------------------

flow=$(sed -n '/^<!-- readme-flow -->$/,/^```$/p' README.md | sed '1,2d;$d')
[[ $flow == *'second answer:'* && $flow == *order-1001* ]] || die 'the flow of the README was not found'

# Runs a script against $base as somebody who pastes it, and says what it printed as answers.
answers() {
  local script=$1 status=0
  env -u http_proxy -u HTTP_PROXY -u all_proxy -u ALL_PROXY ACTONCE="$base" TOKEN="$token" \
    bash -c "$script" >"$work/out" 2>&1 || status=$?
  answered=$(grep 'answer:' "$work/out" | tr -s ' ' | tr '\n' ';')
  return "$status"
}
runs_whole() { answers "$flow" && [[ $answered == 'first answer: dispatch;second answer: replay;' ]]; }
replays() { not answers "$flow" && [[ $answered == 'first answer: replay;' ]]; }

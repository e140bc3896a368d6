#!/bin/sh
# Runs the unit under a systemd that is PID 1 of new namespaces: systemd_pid1.sh BINARY UNIT
#
# Exits with 77 if the machine does not allow it. Needs root. Outside of the namespaces it creates only cgroups.
set -eu
binary=$1 unit=$2
skip() {
    echo "skipped: $*"
    exit 77
}
[ "$(id -u)" = 0 ] || skip "needs root"
for program in unshare nsenter systemctl ip; do
    command -v $program >/dev/null || skip "$program is not on PATH"
done
[ -x /lib/systemd/systemd ] || skip "no systemd"

work=$(mktemp -d)
cp "$binary" "$work/varve"
cp "$unit" "$work/varve.service"
# Everything that systemd and the unit write is in memory.
cat >"$work/inner" <<'INNER'
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /mnt
cp "$1/varve" "$1/varve.service" /mnt
controllers=$(awk -F: '$2 != "" && $2 !~ /=/ { print $2 }' /proc/self/cgroup)
is_hybrid=$(grep -c name=systemd /proc/self/cgroup || true)
umount -R /sys/fs/cgroup
if [ "$is_hybrid" = 0 ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    mkdir /sys/fs/cgroup/systemd /sys/fs/cgroup/unified
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
    mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
    for controller in $controllers; do
        mkdir "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller"
    done
fi
for dir in /run /tmp /etc/default /etc/systemd/system /usr/local/lib /var/lib /var/log; do
    mount -t tmpfs -o mode=755 tmpfs $dir
done
chmod 1777 /tmp
mkdir -p -m 700 /var/lib/private
mkdir -p /run/lock /usr/local/lib /etc/systemd/system/varve.service.d
mv /mnt/varve /usr/local/lib/varve
# Only the path of the binary differs.
sed 's|^ExecStart=/usr/bin/varve|ExecStart=/usr/local/lib/varve|' /mnt/varve.service >/etc/systemd/system/varve.service
echo 'VARVE_FLAGS=--self-scrape-interval=1s' >/etc/default/varve
printf '[Service]\nMemoryMax=300M\n' >/etc/systemd/system/varve.service.d/memory.conf
printf '[Unit]\nWants=dbus.socket varve.service\n' >/etc/systemd/system/test.target
ip link set lo up
exec env -i container=test PATH="$PATH" /lib/systemd/systemd --system --unit=test.target --show-status=0
INNER
cat >"$work/enter" <<'ENTER'
for dir in $1; do
    echo $$ >"$dir/cgroup.procs"
done
shift
exec "$@"
ENTER

# A cgroup of its own in each hierarchy, which the namespace shows as the root.
groups=
for root in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [ -f "$root/cgroup.procs" ] && [ ! -L "$root" ] || continue
    [ "$root" = /sys/fs/cgroup ] || case " $groups" in *" /sys/fs/cgroup/varve-"*) continue ;; esac
    group="$root/varve-$$"
    mkdir "$group" || skip "cannot create cgroups"
    case $root in */cpuset) cat "$root/cpuset.cpus" >"$group/cpuset.cpus" && cat "$root/cpuset.mems" >"$group/cpuset.mems" ;; esac
    groups="$groups$group "
done
sh "$work/enter" "$groups" unshare --pid --fork --kill-child --mount --uts --ipc --net --cgroup --mount-proc \
    sh "$work/inner" "$work" >"$work/log" 2>&1 &
outer=$!
clean() {
    kill -9 $outer 2>/dev/null || true
    wait $outer 2>/dev/null || true
    sleep 0.2
    for group in $groups; do
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean EXIT
inside() {
    nsenter --target "$init" --all "$@"
}
# Waits until a command succeeds, for at most a minute.
wait_for() {
    for _ in $(seq 300); do
        if "$@" >"$work/last" 2>&1; then return 0; fi
        sleep 0.2
    done
    cat "$work/last" "$work/log"
    echo "waited for: $*"
    exit 1
}
has_init() { init=$(pgrep -P $outer -o) && [ "$(cat "/proc/$init/comm")" = systemd ]; }
for _ in $(seq 50); do has_init && break; sleep 0.2; done
has_init || { cat "$work/log"; skip "systemd does not run in namespaces here"; }
is() { [ "$(inside systemctl show varve -p "$1" --value)" = "$2" ]; }
query() { inside /usr/local/lib/varve query instant http://127.0.0.1:9898 "$1" | grep -q "$2"; }

wait_for is ActiveState active
wait_for is StatusText Ready
pid=$(inside systemctl show varve -p MainPID --value)
[ "$(inside stat -c %U "/proc/$pid")" = varve ] || { echo "not a dynamic user"; exit 1; }
inside test -d /var/lib/private/varve/wal
wait_for query 'varve_memory_limit_bytes == 300 * 1024 * 1024' '=> 314572800'
inside systemctl reload varve
is ActiveState active
inside systemctl kill --signal=KILL --kill-who=main varve
wait_for is NRestarts 1
wait_for is StatusText Ready
wait_for query 'count_over_time(varve_memory_limit_bytes[1h]) > 1' '=>'
# A server that hangs is restarted by the watchdog, which takes a minute: a drop-in shortens it.
inside sh -c 'printf "[Service]\nWatchdogSec=2s\n" >/etc/systemd/system/varve.service.d/watchdog.conf'
inside systemctl daemon-reload
inside systemctl restart varve
wait_for is StatusText Ready
pid=$(inside systemctl show varve -p MainPID --value)
inside kill -STOP "$pid"
is_replaced() { ! is MainPID "$pid" && ! is MainPID 0 && is ActiveState active; }
wait_for is_replaced
wait_for query 'vector(1)' '=> 1'
inside systemctl stop varve
is Result success
is ActiveState inactive
echo "the unit started, reloaded, restarted after a kill and after a hang, and stopped"

#!/usr/bin/env bash
# Makes a Debian package of a program that is built: FOLDER/tidegate_VERSION_ARCHITECTURE.deb. The same program and sources
# give the same package. DEBFULLNAME and DEBEMAIL name its maintainer, as for other tools of Debian.
# usage: scripts/deb.sh PROGRAM [FOLDER]
# Needs dpkg-deb, and dpkg-shlibdeps (Debian: dpkg-dev), which finds the libraries that the program needs.
set -euo pipefail

[ $# -ge 1 ] && [ $# -le 2 ] || { echo "usage: scripts/deb.sh PROGRAM [FOLDER]" >&2; exit 2; }
program=$(readlink -f "$1")
[ -x "$program" ] || { echo "deb: $1 is no program: build it with make build" >&2; exit 1; }
folder=$(mkdir -p "${2:-target/deb}" && cd "${2:-target/deb}" && pwd)
for tool in dpkg:dpkg dpkg-deb:dpkg dpkg-shlibdeps:dpkg-dev; do
  command -v "${tool%%:*}" >/dev/null || { echo "deb: ${tool%%:*} is missing, of Debian's ${tool#*:}" >&2; exit 1; }
done
cd "$(dirname "$0")/.."
contrib=$PWD/contrib

# The time of all files in the package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH
maintainer="${DEBFULLNAME:-Tidegate maintainers} <${DEBEMAIL:-maintainers@tidegate.invalid}>"
version=$("$program" --version | cut -d ' ' -f 2)-1
architecture=$(dpkg --print-architecture)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
umask 022
mkdir -p "$root/DEBIAN" "$work/debian"

put() { install -D -m "$1" "$2" "$root/$3"; }
put 755 "$program" usr/bin/tidegate
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/tidegate"

# The front-end has a user that stays, to which its state and its logs belong; the rest of the units is as in contrib.
units=usr/lib/systemd/system
mkdir -p "$root/$units"
sed -e 's|/usr/local/bin/|/usr/bin/|' \
  -e 's|^DynamicUser=yes|User=tidegate\nRemoveIPC=yes\nRestrictSUIDSGID=yes|' \
  -e 's|^# A user that exists while the service runs\.|# The user that the package makes.|' \
  "$contrib/systemd/tidegate.service" >"$root/$units/tidegate.service"
sed 's|/usr/local/bin/|/usr/bin/|' "$contrib/systemd/tidegate-agent.service" >"$root/$units/tidegate-agent.service"

put 644 "$contrib/debian/example.toml" etc/tidegate/example.toml
put 644 "$contrib/logrotate/tidegate" etc/logrotate.d/tidegate
printf '%s\n' /etc/tidegate/example.toml /etc/logrotate.d/tidegate >"$root/DEBIAN/conffiles"

"$program" man --dir "$work/man" >/dev/null
for page in "$work"/man/*; do
  gzip -9n "$page"
  put 644 "$page.gz" "usr/share/man/man${page##*.}/$(basename "$page").gz"
done

complete() {
  "$program" completions "$1" >"$work/completions"
  put 644 "$work/completions" "usr/share/$2"
}
complete bash bash-completion/completions/tidegate
complete zsh zsh/vendor-completions/_tidegate
complete fish fish/vendor_completions.d/tidegate.fish

doc=usr/share/doc/tidegate
put 644 "$contrib/debian/copyright" $doc/copyright
gzip -9n <CHANGELOG.md >"$work/changelog.gz"
put 644 "$work/changelog.gz" $doc/changelog.gz
cat >"$work/changelog.Debian" <<TEXT
tidegate ($version) unstable; urgency=medium

  * See changelog.gz.

 -- $maintainer  $(LC_ALL=C date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")
TEXT
gzip -9n "$work/changelog.Debian"
put 644 "$work/changelog.Debian.gz" $doc/changelog.Debian.gz
for example in examples/two-sites.toml examples/agent.toml contrib/systemd/tidegate-agent-hooks.conf contrib/snmp/TIDEGATE-MIB.txt; do
  put 644 "$example" "$doc/examples/$(basename "$example")"
done
for monitoring in "$contrib"/prometheus/* "$contrib"/grafana/*; do
  [ ! -f "$monitoring" ] || put 644 "$monitoring" "$doc/examples/$(basename "$monitoring")"
done

for script in postinst prerm postrm; do put 755 "$contrib/debian/$script" DEBIAN/$script; done
printf 'Source: tidegate\n\nPackage: tidegate\nArchitecture: any\n' >"$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O "$root/usr/bin/tidegate" 2>"$work/shlibdeps" | sed -n 's/^shlibs:Depends=//p')
[ -n "$libraries" ] || { cat "$work/shlibdeps" >&2; echo "deb: no package has the libraries of $program" >&2; exit 1; }
cat >"$root/DEBIAN/control" <<TEXT
Package: tidegate
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size --exclude=DEBIAN "$root" | cut -f 1)
Depends: adduser, $libraries
Suggests: logrotate
Section: httpd
Priority: optional
Description: load-aware front tier for clusters of web servers
 Tidegate stands before clusters of web servers and sends each request where
 there is room. It reads the load of each server from the server's kernel,
 where an agent publishes it, about each millisecond.
 .
 This package has the front-end and the agent. Neither is started before it
 is configured.
TEXT
(cd "$root" && find . -type f -not -path './DEBIAN/*' -printf '%P\n' | LC_ALL=C sort | xargs md5sum) >"$root/DEBIAN/md5sums"
chmod 644 "$root/DEBIAN/md5sums" "$root/DEBIAN/conffiles" "$root/DEBIAN/control"
find "$root" -type d -exec chmod 755 {} +

package=$folder/tidegate_${version}_$architecture.deb
dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --build "$root" "$package" >/dev/null
echo "$package"

# Both halves of the web server, in one process group: they end together.
# usage: sh start.sh FOLDER PHP-FPM NGINX
set -eu
"$2" -n -d extension=pgsql -d zend_extension=opcache -F -y "$1/php-fpm.conf" -p "$1" &
exec "$3" -e stderr -c "$1/nginx.conf"

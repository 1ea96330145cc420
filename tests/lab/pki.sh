#!/bin/bash
# pki.sh DIR: an authority, a certificate for the server `ctl` and one for the client `muster`, for etcd in the lab.
set -euo pipefail
cd "$1"
umask 077
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1-key.pem"; }
sign() { # NAME SUBJECT EXTENSIONS
  key "$1"
  openssl req -new -key "$1-key.pem" -subj "/CN=$2" -out "$1.csr"
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 3650 -out "$1.pem" -extfile <(echo "$3") 2> /dev/null
  rm "$1.csr"
}
key ca
openssl req -x509 -new -key ca-key.pem -subj "/CN=Muster lab" -days 3650 -out ca.pem
sign server ctl 'subjectAltName=DNS:ctl,DNS:localhost,IP:127.0.0.1
extendedKeyUsage=serverAuth'
sign client muster 'extendedKeyUsage=clientAuth'
rm ca-key.pem ca.srl
chmod 0644 ca.pem server.pem client.pem

package trust

import (
	"fmt"
	"strings"
)

// Paths are where the caller put things, as seen from inside: absolute, of letters, digits and -_./ only. JAVA_TOOL_OPTIONS
// and the configuration of several tools have no quoting that all versions read alike.
type Paths struct {
	Bundle       string // what Bundle gave: roots and authority, for programs that replace their roots
	Authority    string // the authority alone, for programs that add to their roots
	JavaStore    string // what JavaTrustStore gave; empty: Java is told nothing
	JavaPassword string
	Wgetrc       string // what Wgetrc gave; empty: wget is told nothing
}

// variable names a file to one family of programs.
type variable struct {
	name   string
	adds   bool   // the program adds the file to its roots; otherwise the file is all it trusts
	source string // who reads it, and where that is written
}

// variables are set together. Those that only repeat SSL_CERT_FILE for a program that reads it are left out.
var variables = []variable{
	{"SSL_CERT_FILE", false, "OpenSSL: X509_get_default_cert_file_env (man SSL_CTX_set_default_verify_paths), and with it Python's ssl, Ruby, PHP, Perl and .NET; Go: crypto/x509 root_unix.go; Rust: openssl-probe and rustls-native-certs (uv, rustup); curl with OpenSSL: man curl, --cacert"},
	{"NIX_SSL_CERT_FILE", false, "programs of nixpkgs, whose OpenSSL asks it before SSL_CERT_FILE"},
	{"CURL_CA_BUNDLE", false, "curl with every TLS library: man curl, --cacert; Requests: after REQUESTS_CA_BUNDLE; R"},
	{"GIT_SSL_CAINFO", false, "git: man git-config, http.sslCAInfo. libcurl itself reads no variable, and Debian's git has the GnuTLS one"},
	{"REQUESTS_CA_BUNDLE", false, "Python Requests: user guide, SSL Cert Verification; conda"},
	{"PIP_CERT", false, "pip: user guide, --cert; pip has a bundle of its own"},
	{"AWS_CA_BUNDLE", false, "AWS CLI and SDKs: configuration guide, ca_bundle"},
	{"HTTPLIB2_CA_CERTS", false, "Python httplib2: httplib2/certs.py"},
	{"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", false, "gcloud: gcloud topic configurations, core/custom_ca_certs_file"},
	{"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", false, "gRPC core: doc/environment_variables.md"},
	{"CARGO_HTTP_CAINFO", false, "cargo: The Cargo Book, configuration, http.cainfo; its curl is linked statically and reads no variable"},
	{"BUNDLE_SSL_CA_CERT", false, "Bundler: man bundle-config, ssl_ca_cert"},
	{"HEX_CACERTS_PATH", false, "Hex of Elixir: mix hex.config, cacerts_path"},
	{"NPM_CONFIG_CAFILE", false, "npm: config, cafile; npm 11 looks at nothing else (tried with 11.19); pnpm"},
	{"NODE_EXTRA_CA_CERTS", true, "Node.js: command-line options, environment; yarn through it; Bun"},
	{"DENO_CERT", true, "Deno: deno run --help, --cert"},
}

// Environment gives the variables, as NAME=value, that make programs trust what was put at the paths. Programs that read
// none (GnuTLS but for wget, Qt) need the bundle in the place of the system's files, see SystemFiles; Chromium has roots
// of its own and a database in the home, and is not led here.
func Environment(p Paths) ([]string, error) {
	for _, path := range []string{p.Bundle, p.Authority} {
		if err := checkPath(path); err != nil {
			return nil, err
		}
	}
	var out []string
	for _, v := range variables {
		path := p.Bundle
		if v.adds {
			path = p.Authority
		}
		out = append(out, v.name+"="+path)
	}
	if p.Wgetrc != "" {
		if err := checkPath(p.Wgetrc); err != nil {
			return nil, err
		}
		out = append(out, "SYSTEM_WGETRC="+p.Wgetrc)
	}
	if p.JavaStore == "" {
		return out, nil
	}
	options, err := JavaOptions(p)
	if err != nil {
		return nil, err
	}
	return append(out, "JAVA_TOOL_OPTIONS="+options), nil
}

// Wgetrc is a configuration of wget in the place of the system's, read before that of the home (GNU Wget manual, Wgetrc
// location). No variable names certificates to wget with GnuTLS, which is what Debian has.
func Wgetrc(p Paths) ([]byte, error) {
	if err := checkPath(p.Bundle); err != nil {
		return nil, err
	}
	return []byte("ca_certificate = " + p.Bundle + "\n"), nil
}

// JavaOptions is the part of JAVA_TOOL_OPTIONS that is about trust, for callers with other options to pass (JVM Tool
// Interface specification, JAVA_TOOL_OPTIONS; JSSE reference guide, trustStore). Options are parted by spaces.
func JavaOptions(p Paths) (string, error) {
	if err := checkPath(p.JavaStore); err != nil {
		return "", err
	}
	if p.JavaPassword != javaPassword {
		return "", fmt.Errorf("a Java trust store with a password that JavaTrustStore did not give")
	}
	return "-Djavax.net.ssl.trustStore=" + p.JavaStore + " -Djavax.net.ssl.trustStorePassword=" + p.JavaPassword +
		" -Djavax.net.ssl.trustStoreType=PKCS12", nil
}

// SystemFiles are where distributions keep the bundle that programs without a variable read, as crypto/x509 lists them
// (root_linux.go). A caller that shows its own tree inside puts the bundle over those that exist.
var SystemFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Arch, Gentoo, Alpine
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL 6
	"/etc/ssl/ca-bundle.pem",                            // OpenSUSE
	"/etc/pki/tls/cacert.pem",                           // OpenELEC
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // CentOS, RHEL 7
	"/etc/ssl/cert.pem",                                 // Alpine
}

func checkPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("the path %q is not absolute", path)
	case strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") != "":
		return fmt.Errorf("the path %q has characters that some programs take for more than a name", path)
	}
	return nil
}

// Package hide tells which files in a readable tree are secrets, by name and, where a name alone would hide too much, by
// content.
//
// It is pure: names and bytes in, verdicts out. runtime/treescan asks it while walking; the wall builders mask what it
// names. It imports the standard library only. What must not be added: file access, rules about writing (enforce/protect),
// and names that ordinary work needs to read: a false positive makes a build fail with EACCES, so a name goes on the list
// without a content check only if a file of that name has no other purpose than to hold a secret.
package hide

import (
	"bytes"
	"strings"
)

// HeadBytes is how much of a file ByContent wants to see.
const HeadBytes = 64 << 10

// Verdict is the answer for one name.
type Verdict uint8

// The verdicts. Visible is the zero value: most files are no secrets.
const (
	Visible Verdict = iota
	NeedsContent
	Hidden
)

var verdictNames = [...]string{"visible", "needs content", "hidden"}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return "unknown verdict"
}

// ByName judges a path relative to a tree's root; it looks at the last two components only. Folders are never secrets: a
// virtual environment in a folder called .env stays visible, the files in it are judged one by one.
func ByName(rel string) Verdict {
	parent, base := "", rel
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		parent, base = rel[:i], rel[i+1:]
		parent = parent[strings.LastIndexByte(parent, '/')+1:]
	}
	v, _ := Name(parent, base)
	return v
}

// Name judges a file called base in a folder called parent ("" for the tree's root), and says why.
func Name(parent, base string) (Verdict, string) {
	name := lower(base)
	if strings.HasPrefix(name, ".env") {
		return env(name)
	}
	dir := lower(parent)
	if why, ok := hiddenNames[name]; ok {
		return Hidden, why
	}
	if why, ok := inFolder[folded{dir, name}]; ok {
		return Hidden, why
	}
	if dir == "private-keys-v1.d" {
		return Hidden, "GnuPG private key"
	}
	if _, ok := contentNames[name]; ok {
		return NeedsContent, "may hold a credential"
	}
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		if why, ok := hiddenSuffixes[name[dot:]]; ok {
			return Hidden, why
		}
		if _, ok := contentSuffixes[name[dot:]]; ok {
			return NeedsContent, "may hold a key"
		}
	}
	switch {
	case dir == ".ssh" && strings.HasPrefix(name, "id_") && !strings.HasSuffix(name, ".pub"):
		return Hidden, "SSH private key"
	case strings.Contains(name, "service") && strings.Contains(name, "account") && strings.HasSuffix(name, ".json"),
		strings.HasPrefix(name, "client_secret") && strings.HasSuffix(name, ".json"):
		return NeedsContent, "may be a cloud account key"
	}
	return Visible, ""
}

// env hides .env and everything that starts with it: .env.local, .env.production, .envrc, .env.example.local, .env~.
// Only a last suffix that says "no values in here" makes it visible.
func env(name string) (Verdict, string) {
	for _, suffix := range [...]string{".example", ".sample", ".template"} {
		if strings.HasSuffix(name, suffix) {
			return Visible, ""
		}
	}
	return Hidden, "environment file"
}

// hiddenNames exist only to hold a secret.
var hiddenNames = map[string]string{
	".netrc": "logins for curl, git and others", "_netrc": "logins for curl, git and others",
	".git-credentials": "git passwords", ".pypirc": "PyPI upload login", ".pgpass": "PostgreSQL passwords",
	".my.cnf": "MySQL login", ".mylogin.cnf": "MySQL login", ".vault-token": "Vault token",
	".htpasswd": "password hashes", ".dockercfg": "registry logins", ".s3cfg": "S3 keys", ".boto": "cloud storage keys",
	"id_rsa": "SSH private key", "id_dsa": "SSH private key", "id_ecdsa": "SSH private key", "id_ed25519": "SSH private key",
	"id_ecdsa_sk": "SSH private key", "id_ed25519_sk": "SSH private key",
	"application_default_credentials.json": "Google Cloud login", ".terraformrc": "Terraform tokens",
	"credentials.tfrc.json": "Terraform tokens", ".claude.json": "Claude Code login", ".credentials.json": "agent login",
}

// hiddenSuffixes are formats that hold nothing but private keys or passwords.
var hiddenSuffixes = map[string]string{
	".kdbx": "password database", ".kdb": "password database", ".p12": "key store", ".pfx": "key store", ".jks": "key store",
	".keystore": "key store", ".ppk": "PuTTY private key", ".agekey": "age private key", ".ovpn": "VPN login",
}

// contentNames often hold no secret: they are hidden only if the content shows one.
var contentNames = map[string]struct{}{
	".npmrc": {}, ".yarnrc": {}, ".yarnrc.yml": {}, ".pnpmrc": {}, "pip.conf": {}, ".pip.conf": {}, "nuget.config": {}, "auth.json": {},
	"credentials.json": {}, "credentials": {}, "credentials.toml": {}, "credentials.yml": {}, "credentials.yaml": {},
	"secrets.json": {}, "secrets.yml": {}, "secrets.yaml": {}, "secrets.toml": {}, "secret.yml": {}, "secret.yaml": {},
	"terraform.tfstate": {}, "terraform.tfstate.backup": {}, "master.key": {}, "token.json": {},
}

// contentSuffixes are formats for public and private things alike.
var contentSuffixes = map[string]struct{}{".pem": {}, ".key": {}, ".env": {}, ".tfstate": {}, ".tfvars": {}}

type folded struct{ parent, name string }

// inFolder are names that mean something only in one folder.
var inFolder = map[folded]string{
	{".aws", "credentials"}:             "AWS keys",
	{".docker", "config.json"}:          "registry logins",
	{".kube", "config"}:                 "cluster login",
	{".cargo", "credentials"}:           "crates.io token",
	{".cargo", "credentials.toml"}:      "crates.io token",
	{".gem", "credentials"}:             "RubyGems key",
	{".codex", "auth.json"}:             "Codex login",
	{".gemini", "oauth_creds.json"}:     "Gemini login",
	{"gh", "hosts.yml"}:                 "GitHub token",
	{"glab-cli", "config.yml"}:          "GitLab token",
	{".azure", "accesstokens.json"}:     "Azure tokens",
	{".azure", "msal_token_cache.json"}: "Azure tokens",
	{"containers", "auth.json"}:         "registry logins",
	{"gcloud", "credentials.db"}:        "Google Cloud login",
	{"gcloud", "access_tokens.db"}:      "Google Cloud login",
}

// ByContent judges a NeedsContent file by its first bytes (HeadBytes of them, or the whole file).
func ByContent(name string, head []byte) bool {
	name = lower(name[strings.LastIndexByte(name, '/')+1:])
	head = head[:min(len(head), HeadBytes)]
	if hasPrivateKey(head) {
		return true
	}
	switch {
	case strings.HasSuffix(name, ".pem"):
		return false
	case name == "master.key":
		// Rails: 32 hexadecimal digits and nothing else decrypt every credential of the application.
		return len(bytes.TrimSpace(head)) == 32 && isHex(bytes.TrimSpace(head))
	case strings.HasSuffix(name, ".key"):
		return false
	}
	return hasAssignment(head)
}

// lower folds ASCII only: the secret's owner chose the name, nobody gains by writing it in another script.
func lower(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 'A' && c <= 'Z' {
			return strings.ToLower(s)
		}
	}
	return s
}

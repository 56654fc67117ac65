package hide

import (
	"strings"
	"testing"
)

func TestByName(t *testing.T) {
	tests := map[Verdict][]string{
		Hidden: {
			".env", ".ENV", ".env.local", ".env.production", ".env.example.local", ".envrc", ".env~", ".env.bak", "a/b/.env", "a\nb/.env", "\xff/.env",
			".netrc", "_netrc", ".pypirc", ".git-credentials", "id_rsa", "ID_RSA", "id_ed25519", ".pgpass", ".htpasswd", ".vault-token", "x.kdbx", "x.P12", "x.pfx", "x.jks", "x.ppk",
			".aws/credentials", "home/.aws/Credentials", ".docker/config.json", ".kube/config", ".ssh/id_work", ".config/gh/hosts.yml", ".cargo/credentials.toml",
			".gnupg/private-keys-v1.d/AB.key",
		},
		NeedsContent: {
			"a.pem", "A.PEM", "server.key", ".npmrc", "credentials.json", "my-service-account.json", "terraform.tfstate", "x.tfvars", "secrets.yml", "secrets.yaml", "prod.env", "client_secret_1.json",
			"config/master.key", ".pip.conf",
		},
		Visible: {
			"", "main.go", ".env.example", ".env.sample", ".env.template", ".ENV.EXAMPLE", ".env.local.example", "env", "environment.ts", "id_rsa.pub", ".ssh/id_work.pub", ".ssh/config", ".ssh/known_hosts",
			"config.json", "kube/config", ".kube/cache", "aws/credentials.md", "x.crt", "x.pub", "keys.go", "monkey", "tokens.css", "password.go", "secret.go", ".gitignore", ".dockerignore", "package.json",
		},
	}
	for want, names := range tests {
		for _, name := range names {
			if got := ByName(name); got != want {
				t.Errorf("ByName(%q) = %v, want %v", name, got, want)
			}
		}
	}
}

func TestByContent(t *testing.T) {
	const key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n"
	hidden := []struct{ name, head string }{
		{"a.pem", key}, {"a.pem", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n" + key}, {"a.key", "-----BEGIN OPENSSH PRIVATE KEY-----"},
		{"a.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----"}, {"a.key", "-----BEGIN PGP PRIVATE KEY BLOCK-----"}, {"a.key", "AGE-SECRET-KEY-1QQ"}, {"a.pem", "\xef\xbb\xbf" + key},
		{".npmrc", "//registry.example/:_authToken=npm_abcdef123456\n"}, {".npmrc", "_auth=YWxhZGRpbg==\n"}, {".npmrc", "//r.example:8080/:_password=\"c2VjcmV0\"\n"},
		{"credentials.json", `{"type":"service_account","private_key":"-----BEGIN PRIVATE KEY-----\nMII"}`}, {"credentials.json", `{"installed":{"client_secret":"GOCSPX-123456"}}`},
		{"secrets.yml", "production:\n  secret_key_base: 0123456789abcdef\n"}, {"terraform.tfstate", "  \"master_password\": \"hunter22\",\n"}, {"x.tfvars", "db_password = \"hunter22\"\n"},
		{"prod.env", "API_TOKEN=abcdefgh\n"}, {"prod.env", "export DB_PASSWORD='hunter22'\n"}, {"config/master.key", "0123456789abcdef0123456789abcdef\n"},
		{"nuget.config", `<add key="ClearTextPassword" value="hunter22" />`},
	}
	for _, tt := range hidden {
		if !ByContent(tt.name, []byte(tt.head)) {
			t.Errorf("%s %q is visible", tt.name, tt.head)
		}
	}
	visible := []struct{ name, head string }{
		{"a.pem", "-----BEGIN CERTIFICATE-----\nMII\n"}, {"a.pem", ""}, {"a.key", "-----BEGIN PUBLIC KEY-----"}, {"a.key", "dictionary of things\n"}, {"a.pem", strings.Repeat(" ", HeadBytes) + key},
		{"a.pem", "PRIVATE KEY"}, {".npmrc", "registry=https://r.example/\nsave-exact=true\n"}, {".npmrc", "//r/:_authToken=${NPM_TOKEN}\n"}, {".npmrc", "# _authToken=npm_abcdef\n"},
		{"credentials.json", "{}"}, {"secrets.yml", "test:\n  secret_key_base: <%= ENV[\"X\"] %>\n"}, {"secrets.yml", "password: ENC[AES256_GCM,data:x]\n"}, {"prod.env", "PORT=8080\nDEBUG=true\n"},
		{"x.tfvars", "region = \"eu-central-1\"\n"}, {"master.key", "piano\n"},
	}
	for _, tt := range visible {
		if ByContent(tt.name, []byte(tt.head)) {
			t.Errorf("%s %.60q is hidden", tt.name, tt.head)
		}
	}
}

func FuzzByContent(f *testing.F) {
	f.Add("a.pem", []byte("-----BEGIN RSA PRIVATE KEY-----"))
	f.Add(".npmrc", []byte("_authToken=x"))
	f.Fuzz(func(t *testing.T, name string, head []byte) {
		ByName(name)
		ByContent(name, head)
		if !ByContent(name, append([]byte("-----BEGIN PRIVATE KEY-----\n"), head...)) {
			t.Error("a key in front is not seen")
		}
	})
}

func BenchmarkName(b *testing.B) {
	names := []string{"main.go", "index.js", "README.md", "package.json", ".gitignore", "node_modules", "a-rather-long-file-name.test.ts", ".env"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Name("src", names[i%len(names)])
	}
}

package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
)

// fill makes a body for a token without a real-looking token in this file.
func fill(n int) string {
	const letters = "Zx8Kq2Wm7Rt4Bv9Ln3Hs6Pd1Gc5Jf0Ty"
	return strings.Repeat(letters, n/len(letters)+1)[:n]
}

func TestPatternsInText(t *testing.T) {
	body := fill(40)
	tests := []struct{ name, text, secret string }{
		{"github", "push to gh" + "p_" + body + " done", body},
		{"github fine-grained", "x=github" + "_pat_" + body, body},
		{"gitlab", "gl" + "pat-" + body, body},
		{"aws id", "id AK" + "IA" + strings.ToUpper(fill(16)) + ".", strings.ToUpper(fill(16))},
		{"slack", "xo" + "xb-1234-" + body, body},
		{"google", "AI" + "za" + fill(35), fill(35)},
		{"google oauth", "ya" + "29." + body, body},
		{"openai", "key sk-" + "proj-" + body, body},
		{"anthropic", "(sk-" + "ant-api03-" + body + ")", body},
		{"after escape", `text\nsk-` + body, body},
		{"after percent", `a%3Dsk-` + body, body},
		{"npm", "//registry/:_x npm_" + body, body},
		{"pypi", "pypi-" + body, body},
		{"stripe", "sk" + "_live_" + body, body},
		{"huggingface", "hf_" + body, body},
		{"jwt", "eyJ" + fill(20) + ".eyJ" + fill(20) + "." + body, body},
		{"telegram", "bot123456789:" + fill(35), fill(35)},
		{"age", "AGE-SECRET-KEY-1" + strings.ToUpper(body), strings.ToUpper(body)},
		{"bearer", "Authorization: Bearer " + body, body},
		{"bearer alone", "send bearer " + body + " now", body},
		{"bearer encoded", "h=Bearer%20" + body, body},
		{"basic", `curl -H "Authorization: Basic dXNlcjpwYXNz" x`, "dXNlcjpwYXNz"},
		{"header in flag", `curl -H 'X-Api-Key: hunter2hunter2' https://x`, "hunter2hunter2"},
		{"cookie", "Cookie: a=b; sid=hunter22; c=d", "hunter22"},
		{"url", "git clone https://ada:hunter22@host/x", "hunter22"},
		{"url at in password", "postgres://ada:hun@ter22@host/x", "ter22"},
		{"url token", "https://" + "0123456789abcdef@host", "0123456789abcdef"},
		{"query", "GET /?access_token=hunter22&x=1", "hunter22"},
		{"env", "export API_KEY=hunter22 && run", "hunter22"},
		{"env quoted", `PGPASSWORD="hunter 22" psql`, "hunter 22"},
		{"yaml", "db_password: hunter22\nuser: ada", "hunter22"},
		{"yaml block", "password: |-\n  line1\n  hunter22\nuser: ada", "hunter22"},
		{"yaml fold", "password: >\n  hunter22", "hunter22"},
		{"json", `{"password":"hunter22","user":"ada"}`, "hunter22"},
		{"json with quote", `{"password":"hun\"ter22","user":"ada"}`, `ter22`},
		{"json in json", `{"body":"{\"password\":\"hunter22\"}"}`, "hunter22"},
		{"flag", "login --password hunter22 --verbose", "hunter22"},
		{"flag equals", "login --token=hunter22 --verbose", "hunter22"},
		{"flag quoted", `login --password 'hunter 22' -v`, "hunter 22"},
		{"curl user", "curl -u ada:hunter22 https://x", "hunter22"},
		{"arrow", "'secret' => 'hunter22',", "hunter22"},
		{"aws secret", "aws_secret_access_key = hunter22/hunter+22", "hunter22"},
		{"npmrc", "//registry.example/:_authToken=hunter22", "hunter22"},
		{"connection string", "Server=x;Uid=ada;Pwd=hunter22;", "hunter22"},
		{"mysql", "mysql -u root -phunter22 db", "hunter22"},
		{"sshpass", "sshpass -p hunter22 ssh x", "hunter22"},
		{"docker login", "docker login -u ada -p hunter22 host", "hunter22"},
		{"sql", "CREATE USER a IDENTIFIED BY 'hunter22'", "hunter22"},
		{"sql role", "ALTER ROLE a WITH PASSWORD 'hunter22';", "hunter22"},
		{"netrc", "machine h login ada password hunter22", "hunter22"},
		{"netrc lines", "machine h\n  login ada\n  password hunter22\n", "hunter22"},
		{"marker as shield", "password=[redacted:x]hunter22", "hunter22"},
		{"pem", "-----BEGIN RSA PRIVATE KEY-----\nhunter22\n-----END RSA PRIVATE KEY-----", "hunter22"},
		{"pem escaped", `k: "-----BEGIN PRIVATE KEY-----\nhunter22\n-----END PRIVATE KEY-----"`, "hunter22"},
		{"pem cut", "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter22\nhunter22", "hunter22"},
		{"pgp", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nhunter22", "hunter22"},
	}
	r := New()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(tt.text, tt.secret) {
				t.Fatalf("the case does not hold its secret: %q", tt.text)
			}
			got := r.String(tt.text)
			if strings.Contains(got, tt.secret) {
				t.Errorf("survived: %q -> %q", tt.text, got)
			}
			if again := r.String(got); again != got {
				t.Errorf("not idempotent: %q -> %q", got, again)
			}
		})
	}
}

func TestOrdinaryTextIsUntouched(t *testing.T) {
	r := New(Secret{"SHORT", "abc"})
	for _, text := range []string{
		"", "ls -la /tmp", "go test ./... -run TestX -count=1", "a basic understanding of bearers",
		"ssh://git@example.com/x.git", "git@example.com:x/y.git", "https://example.com/a@b", "docker run -u 1000:1000 img",
		"task-management-for-everyone-in-the-house", "risk-assessment-of-something-rather-long", "max_tokens: 4096", "ssh -p 2222 host", "the password is wrong", "mkdir -p a/b", "sha256:" + strings.Repeat("ab", 32),
		"PWD=/home/ada", "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----", "password", "token=", "password: |\nuser: ada", "token: |", "abc",
		"commit 4f2a9c0d1e8b7a6f5d4c3b2a1908f7e6d5c4b3a2", `{"password":null, "ok":true}`, `{"ok":1,"password":false}`, "tokens_in=12 tokens_out=5",
	} {
		if got := r.String(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestKnownValueInEveryForm(t *testing.T) {
	value := `p@ss w"rd/+<é>&'x\` + "\n" + `7`
	r := New(Secret{"DB", value})
	quoted, _ := json.Marshal(value)
	twice, _ := json.Marshal(string(quoted))
	lower := strings.ToLower(url.QueryEscape(value))
	b64 := base64.StdEncoding.EncodeToString([]byte(value))
	for name, text := range map[string]string{
		"plain": value, "json": string(quoted), "json twice": string(twice), "query": url.QueryEscape(value), "path": url.PathEscape(value),
		"hex": hex.EncodeToString([]byte(value)), "base64": b64, "query lower": lower,
		"base64 of pair":  base64.StdEncoding.EncodeToString([]byte("ada:" + value)),
		"base64 offset 1": base64.StdEncoding.EncodeToString([]byte("a" + value + "tail")),
		"base64 offset 2": base64.URLEncoding.EncodeToString([]byte("ab" + value + "tail")),
		"base64 wrapped":  b64[:10] + "\n" + b64[10:],
		"base64 indented": b64[:7] + "\r\n    " + b64[7:],
	} {
		got := r.String("x=<" + text + ">.")
		if !strings.Contains(got, "[redacted") || strings.Contains(got, text) {
			t.Errorf("%s survived: %q", name, got)
		}
		if name != "query lower" && !strings.Contains(got, "[redacted:DB]") {
			t.Errorf("%s: the name is missing: %q", name, got)
		}
	}
}

func TestKnownValueOverlaps(t *testing.T) {
	r := New(Secret{"A", "abcdef"}, Secret{"B", "defghi"})
	if got := r.String("-abcdefghi-"); got != "-[redacted:A]-" {
		t.Errorf("got %q", got)
	}
}

func TestKeyFileLineByLine(t *testing.T) {
	line := fill(40)
	r := New(Secret{"KEY", "-----BEGIN X-----\n" + line + "\n" + fill(20) + "\n"})
	if got := r.String("tail of it: " + line); strings.Contains(got, line) {
		t.Errorf("survived: %q", got)
	}
}

func TestValue(t *testing.T) {
	r := New(Secret{"K", "hunter22"})
	in := map[string]any{
		"command": "export API_KEY=abcdef1 && ls",
		"nested":  map[string]any{"list": []any{map[string]any{"token": "t1"}, "hunter22"}, "password": map[string]any{"a": "b"}},
		"args":    []any{"--token", "t2", "-H", "Authorization: Bearer t3", "--secret=t4", "plain"},
		"argv":    []string{"curl", "-u", "ada:t5", "Authorization:", "t6"},
		"mysql":   []any{"mysql", "-pt9"}, "sshpass": []string{"sshpass", "-p", "t10", "ssh"},
		"env": []any{map[string]any{"name": "API_KEY", "value": "t7"}},
		"pin": json.Number("123456"), "max_tokens": json.Number("4096"), "tokens": json.Number("7"), "n": json.Number("12345678901234567890"),
		"hunter22": true, "raw": []byte("hunter22"), "password": nil,
		"struct": struct{ Token string }{"t8"},
	}
	want := map[string]any{
		"command": "export API_KEY=[redacted:api_key] && ls",
		"nested":  map[string]any{"list": []any{map[string]any{"token": "[redacted:token]"}, "[redacted:K]"}, "password": "[redacted:password]"},
		"args":    []any{"--token", "[redacted:token]", "-H", "Authorization: [redacted:authorization]", "--secret=[redacted:--secret]", "plain"},
		"argv":    []string{"curl", "-u", "[redacted:login]", "Authorization:", "[redacted:authorization]"},
		"mysql":   []any{"mysql", "-p[redacted:password]"}, "sshpass": []string{"sshpass", "-p", "[redacted:password]", "ssh"},
		"env": []any{map[string]any{"name": "API_KEY", "value": "[redacted:api_key]"}},
		"pin": "[redacted:pin]", "max_tokens": json.Number("4096"), "tokens": json.Number("7"), "n": json.Number("12345678901234567890"),
		"[redacted:K]": true, "raw": "[redacted:K]", "password": nil,
		"struct": map[string]any{"Token": "[redacted:token]"},
	}
	got := r.Value(in)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
	if again := r.Value(got); !reflect.DeepEqual(again, got) {
		t.Errorf("not idempotent: %#v", again)
	}
}

func TestValueIsBounded(t *testing.T) {
	var deep any = "hunter22"
	for range 10_000 {
		deep = []any{deep}
	}
	cycle := map[string]any{}
	cycle["self"] = cycle
	wide := make([]any, 300_000)
	for i := range wide {
		wide[i] = map[string]any{"a": "b"}
	}
	for name, v := range map[string]any{"deep": deep, "cycle": cycle, "wide": wide, "func": func() {}, "chan": make(chan int)} {
		if _, err := encode(New().Value(v)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkLinear shows how the time grows with the text, for texts that make a
// backtracking matcher slow: for 16 times the text, linear work takes 16 times
// as long and quadratic work 256 times.
func BenchmarkLinear(b *testing.B) {
	secrets := make([]Secret, 50)
	for i := range secrets {
		secrets[i] = Secret{fmt.Sprint("S", i), fmt.Sprintf("aaaaaaaa%04d", i)}
	}
	r := New(secrets...)
	for _, unit := range []string{
		"eyJ", "eyJ.", "a", "aaaa\n", "-----BEGIN PRIVATE KEY", "-----BEGIN X", "://", "://a@", "token=", "token='", `-u "a`, `token="\`, "sk-", "bearer ", "%3d", "[redacted:", "password: [redacted]", "1//0", "12345678:", "password '", "token: |\n a", "token: |\n", "mysql -p'", "login -p \"",
	} {
		b.Run(fmt.Sprintf("%q", unit), func(b *testing.B) {
			cost := func(n int) time.Duration {
				text := strings.Repeat(unit, n/len(unit))
				start := time.Now()
				r.String(text)
				return time.Since(start)
			}
			var small, large time.Duration
			for b.Loop() {
				small += cost(1 << 13)
				large += cost(1 << 17)
			}
			b.ReportMetric(float64(large)/float64(small), "x-for-16-times")
		})
	}
}

func FuzzPlantedSecret(f *testing.F) {
	f.Add("hunter2-hunter2", "the key is ", " and so on", uint8(0))
	f.Add(`q"uo'te`, `{"a":"`, `"}`, uint8(1))
	f.Add("ab cd ef", "password=[redacted:", "]", uint8(2))
	f.Add("0123456789", "aaa", "==", uint8(3))
	f.Add("p%40ss", "https://a:", "@host", uint8(4))
	f.Add("=====", "x", "y", uint8(5))
	f.Fuzz(func(t *testing.T, secret, before, after string, how uint8) {
		secret = strings.TrimSpace(secret)
		if len(secret) < MinValue || strings.Contains("[redacted:]", strings.ToLower(secret)) {
			return // not a value that is searched for
		}
		r := New(Secret{"S", secret})
		planted := before + secret + after
		switch how % 5 {
		case 1:
			b, err := json.Marshal(map[string]string{"k": planted})
			if err != nil {
				t.Fatal(err)
			}
			planted = string(b)
		case 2:
			planted = "https://h/?q=" + url.QueryEscape(planted)
		case 3:
			planted = base64.StdEncoding.EncodeToString([]byte(planted))
		case 4:
			planted = hex.EncodeToString([]byte(planted))
		}
		got := r.String(planted)
		check(t, secret, got, how%5)
		if again := r.String(got); again != got {
			t.Errorf("not idempotent: %q -> %q -> %q", planted, got, again)
		}
		for _, s := range r.Args([]string{before, planted, after}) {
			check(t, secret, s, how%5)
		}
	})
}

func check(t *testing.T, secret, got string, how uint8) {
	t.Helper()
	// What a reader of the text can undo.
	if strings.Contains(got, secret) {
		t.Errorf("%q survived in %q", secret, got)
	}
	if how == 3 {
		if b, err := base64.StdEncoding.DecodeString(got); err == nil && strings.Contains(string(b), secret) {
			t.Errorf("%q survived in base64 %q", secret, got)
		}
	}
	if how == 4 {
		if b, err := hex.DecodeString(got); err == nil && strings.Contains(string(b), secret) {
			t.Errorf("%q survived in hex %q", secret, got)
		}
	}
}

func FuzzIdempotent(f *testing.F) {
	for _, s := range []string{"password=[redacted:password", `token: "a\"b`, "Authorization: Basic x\n--token --token", "https://a:b@c@d/://", "-u a:b -u [redacted]"} {
		f.Add(s)
	}
	r := New(Secret{"K", "hunter22"})
	f.Fuzz(func(t *testing.T, s string) {
		once := r.String(s)
		if twice := r.String(once); twice != once {
			t.Errorf("%q -> %q -> %q", s, once, twice)
		}
	})
}

func BenchmarkString(b *testing.B) {
	r := New(Secret{"K", "hunter22hunter22"})
	text := strings.Repeat("2026-01-01 INFO request id=42 path=/a/b/c status: 200 user=ada took 12ms\n", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r.String(text)
	}
}

package upstream

import (
	"reflect"
	"strings"
	"testing"

	"coworker/netproxy/control"
)

func TestFromEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name, environ string
		want          *control.Upstream
		source        string
		err           string
	}{
		{name: "nothing", environ: "PATH=/bin"},
		{name: "empty", environ: "HTTPS_PROXY="},
		{name: "upper case", environ: "HTTPS_PROXY=http://Proxy.Example.org:3128", source: "HTTPS_PROXY",
			want: &control.Upstream{URL: "http://proxy.example.org:3128"}},
		{name: "lower case first", environ: "HTTPS_PROXY=http://a.example|https_proxy=http://b.example", source: "https_proxy",
			want: &control.Upstream{URL: "http://b.example:80"}},
		{name: "https before http", environ: "http_proxy=http://a.example|HTTPS_PROXY=http://b.example:1", source: "HTTPS_PROXY",
			want: &control.Upstream{URL: "http://b.example:1"}},
		{name: "no scheme", environ: "http_proxy=proxy:8080", source: "http_proxy", want: &control.Upstream{URL: "http://proxy:8080"}},
		{name: "address", environ: "http_proxy=http://[2001:db8::1]:8080/", source: "http_proxy",
			want: &control.Upstream{URL: "http://[2001:db8::1]:8080"}},
		{name: "user", environ: "http_proxy=http://me%40corp:p%3As@proxy.example:8080", source: "http_proxy",
			want: &control.Upstream{URL: "http://proxy.example:8080", User: "me@corp", Password: "p:s"}},
		{name: "httpoxy", environ: "HTTP_PROXY=http://evil.example|REQUEST_METHOD=GET"},
		{name: "no proxy", environ: "http_proxy=http://p.example|no_proxy=.corp.example, 10.1.2.3/8 *.lan,localhost 192.0.2.7|NO_PROXY=other.example", source: "http_proxy",
			want: &control.Upstream{URL: "http://p.example:80",
				NoProxy: []string{".corp.example", ".lan", ".localhost", "10.0.0.0/8", "192.0.2.7", "corp.example", "lan", "localhost"}}},
		{name: "no proxy at all", environ: "http_proxy=http://p.example|NO_PROXY=*"},
		{name: "no proxy wrong", environ: "http_proxy=http://p.example|NO_PROXY=a:80", source: "http_proxy", err: `"a:80"`},
		{name: "socks", environ: "https_proxy=socks5://p.example:1080", source: "https_proxy", err: "socks5"},
		{name: "tls", environ: "https_proxy=https://me:secret@p.example:1080", source: "https_proxy", err: "only http://"},
		{name: "path", environ: "https_proxy=http://me:secret@p.example/x", source: "https_proxy", err: "no path"},
		{name: "invalid", environ: "https_proxy=http://me:secret@p .example", source: "https_proxy", err: "not a valid URL"},
		{name: "invalid port", environ: "https_proxy=http://me:secret@p.example:99999", source: "https_proxy", err: "port is above"},
		{name: "no host", environ: "https_proxy=http://me:secret@", source: "https_proxy", err: "host of the proxy"},
		{name: "control", environ: "https_proxy=http://me:secret%0d%0aX@p.example", source: "https_proxy", err: "no place"},
		{name: "colon", environ: "https_proxy=http://m%3ae:secret@p.example", source: "https_proxy", err: "no place"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, source, err := FromEnvironment(strings.Split(tt.environ, "|"))
			if source != tt.source || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v from %q, want %+v from %q", got, source, tt.want, tt.source)
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}

func FuzzFromEnvironment(f *testing.F) {
	f.Add("http://user:sesame@proxy.example:3128", ".corp,10.0.0.0/8")
	f.Add("proxy", "*")
	f.Add("http://[::1", "[::1] a..b")
	f.Fuzz(func(t *testing.T, proxy, direct string) {
		got, _, err := FromEnvironment([]string{"https_proxy=" + proxy, "no_proxy=" + direct})
		if err != nil || got == nil {
			return
		}
		again, err := Parse(got.URL)
		if err != nil || again.URL != got.URL || again.User != "" {
			t.Errorf("%q becomes %q, and that becomes %+v, %v", proxy, got.URL, again, err)
		}
	})
}

package redact

import "strings"

// token is a format whose text alone shows that it is a secret.
type token struct {
	prefix string
	min    int  // characters after the prefix
	alpha  byte // which characters: see charset
	edge   bool // the prefix is short enough to be the end of a word
	label  string
}

// Alphabets of tokens.
const (
	word   = 'w' // A-Z a-z 0-9 _ -
	dotted = 'd' // word and .
	upper  = 'u' // A-Z 0-9
	hexa   = 'h' // hexadecimal
	path   = 'p' // word, . / + = :
)

// tokens lists prefixes that issuers document for secret scanning. Public keys
// (Stripe pk_, Google client ids) are not secrets and are left out.
var tokens = []token{
	{"ghp_", 16, word, false, "github-token"},
	{"gho_", 16, word, false, "github-token"},
	{"ghu_", 16, word, false, "github-token"},
	{"ghs_", 16, dotted, false, "github-token"},
	{"ghr_", 16, word, false, "github-token"},
	{"github_pat_", 16, word, false, "github-token"},
	{"glpat-", 16, dotted, false, "gitlab-token"},
	{"gldt-", 16, word, false, "gitlab-token"},
	{"glrt-", 16, dotted, false, "gitlab-token"},
	{"glcbt-", 16, word, false, "gitlab-token"},
	{"glptt-", 16, word, false, "gitlab-token"},
	{"glft-", 16, word, false, "gitlab-token"},
	{"glsoat-", 16, word, false, "gitlab-token"},
	{"glagent-", 16, word, false, "gitlab-token"},
	{"AKIA", 16, upper, false, "aws-key-id"},
	{"ASIA", 16, upper, false, "aws-key-id"},
	{"ABIA", 16, upper, false, "aws-key-id"},
	{"ACCA", 16, upper, false, "aws-key-id"},
	{"ABSK", 60, path, false, "aws-bedrock-key"},
	{"xoxb-", 10, word, false, "slack-token"},
	{"xoxp-", 10, word, false, "slack-token"},
	{"xoxa-", 10, word, false, "slack-token"},
	{"xoxr-", 10, word, false, "slack-token"},
	{"xoxs-", 10, word, false, "slack-token"},
	{"xoxo-", 10, word, false, "slack-token"},
	{"xoxc-", 10, word, false, "slack-token"},
	{"xoxd-", 10, path, false, "slack-token"},
	{"xoxe-", 10, word, false, "slack-token"},
	{"xoxe.xox", 10, word, false, "slack-token"},
	{"xapp-", 10, word, false, "slack-token"},
	{"hooks.slack.com/services/", 10, path, false, "slack-webhook"},
	{"hooks.slack.com/workflows/", 10, path, false, "slack-webhook"},
	{"discord.com/api/webhooks/", 10, path, false, "discord-webhook"},
	{"discordapp.com/api/webhooks/", 10, path, false, "discord-webhook"},
	{"AIza", 30, word, false, "google-api-key"},
	{"ya29.", 16, dotted, false, "google-oauth-token"},
	{"GOCSPX-", 16, word, false, "google-client-secret"},
	{"1//0", 24, word, true, "google-refresh-token"},
	{"sk-", 20, dotted, true, "api-key"},
	{"sk_live_", 10, word, false, "stripe-key"},
	{"sk_test_", 10, word, false, "stripe-key"},
	{"rk_live_", 10, word, false, "stripe-key"},
	{"rk_test_", 10, word, false, "stripe-key"},
	{"whsec_", 16, path, false, "webhook-secret"},
	{"npm_", 30, word, false, "npm-token"},
	{"NpmToken.", 20, word, false, "npm-token"},
	{"pypi-", 32, word, true, "pypi-token"},
	{"rubygems_", 32, hexa, false, "rubygems-token"},
	{"cio", 32, word, true, "crates-token"},
	{"dckr_pat_", 16, word, false, "docker-token"},
	{"dckr_oat_", 16, word, false, "docker-token"},
	{"hf_", 24, word, true, "huggingface-token"},
	{"gsk_", 20, word, true, "groq-key"},
	{"xai-", 20, word, true, "xai-key"},
	{"pplx-", 20, word, true, "perplexity-key"},
	{"r8_", 20, word, true, "replicate-token"},
	{"tvly-", 20, word, true, "tavily-key"},
	{"fw_", 20, word, true, "fireworks-key"},
	{"SG.", 30, dotted, true, "sendgrid-key"},
	{"key-", 32, hexa, true, "mailgun-key"},
	{"SK", 32, hexa, true, "twilio-key"},
	{"dop_v1_", 32, hexa, false, "digitalocean-token"},
	{"doo_v1_", 32, hexa, false, "digitalocean-token"},
	{"dor_v1_", 32, hexa, false, "digitalocean-token"},
	{"dapi", 32, hexa, true, "databricks-token"},
	{"hvs.", 20, dotted, true, "vault-token"},
	{"hvb.", 20, dotted, true, "vault-token"},
	{"hvr.", 20, dotted, true, "vault-token"},
	{"dp.pt.", 20, word, true, "doppler-token"},
	{"dp.st.", 20, dotted, true, "doppler-token"},
	{"pscale_tkn_", 16, dotted, false, "planetscale-token"},
	{"pscale_pw_", 16, dotted, false, "planetscale-token"},
	{"shpat_", 20, hexa, false, "shopify-token"},
	{"shpss_", 20, hexa, false, "shopify-token"},
	{"shpca_", 20, hexa, false, "shopify-token"},
	{"shppa_", 20, hexa, false, "shopify-token"},
	{"sq0atp-", 20, word, false, "square-token"},
	{"sq0csp-", 20, word, false, "square-token"},
	{"sntrys_", 20, path, false, "sentry-token"},
	{"sntryu_", 20, path, false, "sentry-token"},
	{"glsa_", 20, word, false, "grafana-token"},
	{"glc_", 20, path, true, "grafana-token"},
	{"NRAK-", 20, word, false, "newrelic-key"},
	{"PMAK-", 20, word, false, "postman-key"},
	{"lin_api_", 20, word, false, "linear-key"},
	{"ntn_", 20, word, true, "notion-token"},
	{"secret_", 40, word, true, "notion-token"},
	{"figd_", 20, word, true, "figma-token"},
	{"ATATT3", 20, path, false, "atlassian-token"},
	{"ATCTT3", 20, path, false, "atlassian-token"},
	{"ATBB", 24, word, true, "bitbucket-token"},
	{"sbp_", 20, word, true, "supabase-key"},
	{"sb_secret_", 16, word, false, "supabase-key"},
	{"nfp_", 20, word, true, "netlify-token"},
	{"HRKU-", 20, word, false, "heroku-key"},
	{"FlyV1 ", 20, path, false, "fly-token"},
	{"fo1_", 20, word, true, "fly-token"},
	{"dt0c01.", 20, dotted, false, "dynatrace-token"},
	{"CCIPAT_", 20, word, false, "circleci-token"},
	{"bkua_", 20, word, true, "buildkite-token"},
	{"tskey-", 12, word, false, "tailscale-key"},
	{"pul-", 40, hexa, true, "pulumi-token"},
	{"AGE-SECRET-KEY-1", 20, upper, false, "age-key"},
	{"AGE-PLUGIN-", 20, word, false, "age-key"},
}

// byFirst holds the tokens by first byte.
var byFirst = func() (table [256][]token) {
	for _, t := range tokens {
		table[t.prefix[0]] = append(table[t.prefix[0]], t)
	}
	return table
}()

// pairs has a bit for each first two bytes of a token: most positions of a text
// are ruled out by it.
var pairs = func() (bits [1 << 10]uint64) {
	for _, t := range tokens {
		p := uint16(t.prefix[0])<<8 | uint16(t.prefix[1])
		bits[p>>6] |= 1 << (p & 63)
	}
	return bits
}()

func charset(alpha, c byte) bool {
	switch alpha {
	case upper:
		return isUpper(c) || isDigit(c)
	case hexa:
		return isHex(c)
	case dotted:
		return isWord(c) || c == '.'
	case path:
		return isBase64(c) || c == '.' || c == ':' || c == '%'
	}
	return isWord(c)
}

func findTokens(s string, spans []span) []span {
	noJWT := 0 // in s[:noJWT] no run has the dots of a JWT
	for i := 0; i < len(s); {
		end, label := 0, ""
		if s[i] != 'e' {
			end, label = tokenAt(s, i)
		} else if i >= noJWT {
			end, noJWT = jwtAt(s, i)
			label = "jwt"
		}
		if end == 0 {
			end, label = botTokenAt(s, i)
		}
		if end == 0 {
			i++
			continue
		}
		spans = append(spans, span{i, end, label})
		i = end
	}
	return spans
}

func tokenAt(s string, i int) (end int, label string) {
	if i+1 >= len(s) {
		return 0, ""
	}
	if p := uint16(s[i])<<8 | uint16(s[i+1]); pairs[p>>6]&(1<<(p&63)) == 0 {
		return 0, ""
	}
	for _, t := range byFirst[s[i]] {
		if !strings.HasPrefix(s[i:], t.prefix) || t.edge && !edge(s, i) {
			continue
		}
		start := i + len(t.prefix)
		end := start
		for end < len(s) && charset(t.alpha, s[end]) {
			end++
		}
		if end-start >= t.min {
			return end, t.label
		}
	}
	return 0, ""
}

// jwtAt finds a JSON web token (RFC 7519), which starts with the base64 of
// '{"' and has two dots. tried is how far the text is known to hold none: a
// run without two dots has none anywhere, and looking again from each of its
// bytes would take quadratic time.
func jwtAt(s string, i int) (end, tried int) {
	if !strings.HasPrefix(s[i:], "eyJ") {
		return 0, 0
	}
	end = i
	for end < len(s) && charset(dotted, s[end]) {
		end++
	}
	if end-i >= 20 && strings.Count(s[i:end], ".") >= 2 {
		return end, 0
	}
	return 0, end
}

// edge reports whether a word can begin at s[i]: what is before it is not part
// of the word, or is the end of an escape (\n in JSON, %3D in a URL).
func edge(s string, i int) bool {
	if i == 0 || !isAlnum(s[i-1]) && s[i-1] != '-' && s[i-1] != '_' {
		return true
	}
	if i >= 2 && s[i-2] == '\\' {
		return true
	}
	return i >= 3 && s[i-3] == '%' && isHex(s[i-2]) && isHex(s[i-1])
}

// botTokenAt finds Telegram bot tokens: 8 to 10 digits, a colon, 35 characters.
func botTokenAt(s string, i int) (end int, label string) {
	if !isDigit(s[i]) || i > 0 && isDigit(s[i-1]) {
		return 0, ""
	}
	colon := i
	for colon < len(s) && colon-i <= 10 && isDigit(s[colon]) {
		colon++
	}
	if colon-i < 8 || colon-i > 10 || colon >= len(s) || s[colon] != ':' {
		return 0, ""
	}
	end = colon + 1
	for end < len(s) && isWord(s[end]) {
		end++
	}
	if end-colon-1 < 34 {
		return 0, ""
	}
	return end, "telegram-token"
}

package redact

import (
	"regexp"
	"slices"
	"strings"
)

// A Rule is one kind of secret. A rule with Keys removes the values of keys that end in one of them, read without case,
// dots, dashes and underscores. One with a Pattern removes what its group matches, or all of it, where one of Literals
// begins (in any case). The others are code.
type Rule struct {
	ID       string
	For      string   // what it removes, for docs/redaction.md
	Keys     []string // lower case, without dashes and underscores
	Exact    []string // like Keys, but the whole key
	Whole    bool     // values of the keys are lists and objects
	Prose    bool     // the keys are words of error messages too
	Literals []string
	Alone    bool   // a literal begins a word
	Pattern  string // behind a literal too; anchored at its beginning
	Strict   bool   // only at the level Strict
	Examples []string

	find func(t *text, rule *Rule, s int)
	re   *regexp.Regexp
}

// literals returns the texts that the automaton searches for. Keys are found by the words in which they end.
func (r *Rule) literals() []string {
	all := r.Literals
	for _, k := range slices.Concat(r.Keys, r.Exact) {
		for _, word := range []string{
			"password", "passwd", "passphrase", "token", "secret", "cookie", "credential", "certificate",
		} {
			if strings.Contains(k, word) {
				k = word
			}
		}
		all = append(all, k)
		for _, end := range []string{"key", "keyid", "signature", "data", "id", "json", "cfg", "env"} {
			head, ok := strings.CutSuffix(k, end)
			if ok && head != "" {
				all = append(all, head+"_"+end, head+"-"+end, head+"."+end)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// option matches an option of programs and its value, in a command line, in a list of JSON, and as the kernel has them.
func option(programs, names string) string {
	const between = `[ \x00"',\\]`
	return `(?:` + programs + `)(?:` + between + `[^|;]*?)?` + between + `(?:` + names + `)(?:=|` + between + `)*` +
		`([^\s"'\x00\\,]+)`
}

// Rules are all rules.
var Rules = []Rule{
	{
		ID: "password", For: "passwords: values of keys that end in password, passwd, passphrase, pwd",
		Keys:  []string{"password", "passwords", "passwd", "passphrase", "pwd"},
		Exact: []string{"pass", "dbpass", "userpass", "rootpass", "adminpass", "sshpass", "redispass"},
		Examples: []string{
			`password: planted`, `"Password":"planted",`, `--password planted`, `PGPASSWORD=planted`,
			`db_password_prod = "planted"`, `{Password:planted User:u}`,
		},
	},
	{
		ID: "token", For: "tokens: values of keys that end in token, of kubeconfigs, registries, APIs, URLs",
		Keys: []string{"token", "tokens"}, Prose: true,
		Examples: []string{
			`token: planted0`, `identitytoken = "planted"`, `GET /?access_token=planted&a=b`, `"id_token": ["planted"]`,
		},
	},
	{
		ID:   "secret",
		For:  "values of keys that end in secret or secret key; names of Secrets and volumes of type secret stay",
		Keys: []string{"secret", "secretkey"}, Exact: []string{"secretid"}, Prose: true,
		Examples: []string{`client_secret=planted`, `"SECRET_KEY" : {"a": "planted"}`},
	},
	{
		ID:  "key",
		For: "values of keys that end in API key, access key, private key, client key, encryption key and the like",
		Keys: []string{
			"apikey", "accesskey", "accesskeyid", "accountkey", "privatekey", "encryptionkey", "signingkey",
			"masterkey", "presharedkey", "psk", "storagekey", "clientkey", "amzsignature", "googsignature",
			"sharedaccesssignature", "tlskey", "cakey",
		},
		Examples: []string{
			`client-key-data: planted`, `AccountKey=planted;EndpointSuffix=a`, `"private_key": "planted\nplanted"`,
		},
	},
	{
		ID: "credential", For: "values of keys that end in credential, credentials, creds",
		Keys: []string{"credential", "credentials", "creds"}, Prose: true,
		Examples: []string{`"credentials": {"id": "planted"}`, `--creds a:planted`, `X-Amz-Credential=planted`},
	},
	{
		ID: "auth", For: "logins of registries: `auth`, `.dockerconfigjson`, `.dockercfg`",
		Exact:    []string{"auth", "dockerconfigjson", "dockercfg"},
		Examples: []string{`"auth": "cGxhbnRlZDpwplanted"`, `.dockerconfigjson: eyJplantedplanted`},
	},
	{
		ID: "username", For: "values of `username`, but `system:*`",
		Exact: []string{"username"}, Prose: true,
		Examples: []string{`username = "planted"`},
	},
	{
		ID:    "header",
		For:   "headers that log in: Authorization, Proxy-Authorization, Cookie, Set-Cookie, X-Registry-Auth",
		Exact: []string{"authorization", "proxyauthorization", "cookie", "setcookie", "xregistryauth"},
		Examples: []string{
			`Authorization: Negotiate planted`, `Cookie: a=planted; b=planted`, `"Set-Cookie": ["planted"]`,
		},
	},
	{
		ID:   "env",
		For:  "environments of containers and of exec plugins: lists and objects below env, envs, environment",
		Keys: []string{"env", "envs", "environment", "environ"}, Whole: true,
		Examples: []string{`"env": ["A=planted"]`, `Envs:[]*KeyValue{&KeyValue{Key:A,Value:planted,},}`},
	},
	{
		ID: "secret-data", For: "`stringData`, and `data` of an object of kind Secret",
		Exact: []string{"data", "stringdata"}, Whole: true,
		Examples: []string{`{"data": {"a": "planted"}, "kind": "Secret"}`, `"stringData": {"a": "planted"}`},
	},
	{
		ID: "private-key", For: "private keys in PEM: plain, indented, with escaped line feeds, behind log headers",
		Literals: []string{"-----BEGIN "}, find: (*text).pem,
		Examples: []string{
			"-----BEGIN RSA PRIVATE KEY-----\nMIIplanted\nplanted=\n-----END RSA PRIVATE KEY-----",
			`-----BEGIN PRIVATE KEY-----\nMIIplanted`,
		},
	},
	{
		ID: "base64", For: "private keys in PEM and configurations of registries, in base64",
		Literals: []string{"LS0tLS1CRUdJTi", "eyJhdXRocyI"}, Alone: true,
		Pattern:  `(?:LS0tLS1CRUdJTiB(?:[A-CE-PR-Z]|Q[A-UW-Z])|eyJhdXRocyI)[A-Za-z0-9+/=]+`,
		Examples: []string{`x: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQplanted`, `x: eyJhdXRocyI6eyJplanted`},
	},
	{
		ID: "jwt", For: "JSON Web Tokens, as those of service accounts",
		Literals: []string{"eyJ"}, Alone: true,
		Pattern:  `eyJ[\w-]{8,}\.eyJ[\w-]*(?:\.[\w-]*)?|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*`,
		Examples: []string{`x eyJhbGciOiJSUzI1NiJ9.eyJplanted.planted_-`},
	},
	{
		ID: "bootstrap-token", For: "bootstrap tokens behind kubeadm, join or bootstrap; elsewhere as tokens",
		Literals: []string{"kubeadm", "join", "bootstrap"}, Alone: true,
		Pattern:  `(?i:kubeadm|join|bootstrap)\b.*?[^\w.-]([a-z0-9]{6}\.[a-z0-9]{16})\b`,
		Examples: []string{`join plante.d0planted0plante`},
	},
	{
		ID: "bearer", For: "bearer tokens and basic authentication in texts",
		Literals: []string{"bearer ", "basic "}, Alone: true,
		Pattern: `(?i:bearer) +\\*["']?([\w.~+/=-]*[0-9][\w.~+/=-]{6,}|[\w.~+/=-]{6,}[0-9][\w.~+/=-]*|` +
			`[\w.~+/=-]{24,})|(?i:basic) +\\*["']?([A-Za-z0-9+/]{4,}[A-Z0-9+/][A-Za-z0-9+/]*={0,2})`,
		Examples: []string{`x Bearer planted-0123456789`, `x Basic cGxhbnRlZDpwplantedA==`},
	},
	{
		ID: "url", For: "passwords in URLs; signatures and keys in their queries",
		Literals: []string{"://", "?sig=", "&sig=", "signature=", "&key=", "?key="},
		Pattern: `://(?:[^\s/@:"'<>\\,?\[]*:([^\s/"'<>\\?]+)|([^\s/@:"'<>\\,?]{16,}))@|` +
			`(?i)[?&]?(?:sig|signature|key)=([\w%+/=.~-]{16,})`,
		Examples: []string{
			`https://user:planted@example.com/`, `http://plantedplanted000@example.com`,
			`https://example.com/?sv=1&sig=planted0123456789%3D`,
		},
	},
	{
		ID: "service-token",
		For: "keys and tokens of AWS, Google, GitHub, GitLab, Slack, Docker Hub, npm, Vault, OpenShift with a known " +
			"form",
		Literals: []string{
			"AKIA", "ASIA", "AIza", "ya29.", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-",
			"glrt-", "xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-", "xapp-", "hooks.slack.com/services/", "dckr_pat_",
			"npm_", "hvs.", "hvb.", "sha256~",
		},
		Pattern: `A[KS]IA[A-Z0-9]{12,}|AIza[\w-]{30,}|ya29\.[\w.-]{10,}|(?:gh[pousr]_|github_pat_|gl(?:pat|dt|rt)-|` +
			`xox[abprs]-|xapp-|dckr_pat_|npm_|hv[sb]\.|sha256~)[\w-]{16,}|hooks\.slack\.com/services/([\w/]+)`,
		Examples: []string{
			`x AKIAPLANTED00000000`, `x AIzaplanted000000000000000000000000`, `x ghp_planted0000000000000000`,
			`https://hooks.slack.com/services/T0/B0/planted`,
		},
	},
	{
		ID: "login",
		For: "passwords on command lines: `-p` of mysql, sshpass and logins, `-u` of curl, ctr, etcdctl, " +
			"`-a` of redis-cli",
		Literals: []string{
			"mysql", "mariadb", "sshpass", "redis-cli", "login", "curl", "ctr", "etcdctl", "openssl",
		},
		Alone: true,
		Pattern: option(`(?:mysql|mariadb)\w*|sshpass|login`, `-p`) + `|` + option(`redis-cli`, `-a`) + `|` +
			option(`curl|ctr|etcdctl`, `-u|-U|--user|--proxy-user`) + `|` + option(`openssl`, `-pass(?:in|out)?`),
		Examples: []string{
			`mysql -u root -pplanted`, `curl -s -u admin:planted https://example.com`,
			`"args": ["redis-cli", "-a", "planted"]`,
		},
	},
	{
		ID: "option", For: "values of `-e NAME=`, `--env NAME=` and `--from-literal`",
		Literals: []string{"-e ", "-e\x00", "--env", "--from-literal"}, Alone: true,
		Pattern:  `(?:-e|--env|--from-literal)[ =\x00"',\\]+[\w.-]+=([^\s"'\x00\\,]+)`,
		Examples: []string{`docker run -e A=planted nginx`, `kubectl create secret generic a --from-literal=b=planted`},
	},
	{
		ID:       "environment",
		For:      "variables in `Environment=` of units; those of the kubelet, the runtimes, Go and the shell stay",
		Literals: []string{"environment="}, find: (*text).environment,
		Examples: []string{`Environment="A=planted b" C=planted`},
	},
	{
		ID:       "toml-header",
		For:      "values in sections `.header` and `.auth` of TOML: hosts.toml and configurations of containerd",
		Literals: []string{".header]", ".auth]"}, find: (*text).header,
		Examples: []string{"[host.\"https://example.com\".header]\n  x-a = [\"planted\"]\n"},
	},
	{
		ID: "certificate", For: "client certificates, which hold names: `client-certificate-data`",
		Keys: []string{"clientcertificate"}, Strict: true,
		Examples: []string{"client-certificate-data: planted"},
	},
	{
		ID: "certificate-pem", For: "certificates in PEM, which hold names",
		Literals: []string{"-----BEGIN CERTIFICATE"}, find: (*text).pem, Strict: true,
		Examples: []string{"-----BEGIN CERTIFICATE-----\nMIIplanted\n-----END CERTIFICATE-----"},
	},
}

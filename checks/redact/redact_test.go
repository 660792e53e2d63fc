package redact

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/internal/testkit"
)

func formatOf(name string) Format {
	switch filepath.Ext(name) {
	case ".json", ".conflist":
		return JSON
	case ".yaml":
		return YAML
	}
	return Text
}

var must, equal = testkit.Must, testkit.Equal

func redacted(t testing.TB, text []byte, level Level, format Format) (string, int) {
	t.Helper()
	var b bytes.Buffer
	n, err := New(level, nil).Copy(&b, bytes.NewReader(text), format)
	must(t, err)
	return b.String(), n
}

// TestCorpus redacts files that have one of each secret. All secrets contain the word planted, in plain or in base64.
func TestCorpus(t *testing.T) {
	files, _ := filepath.Glob("testdata/corpus/*")
	if len(files) < 10 {
		t.Fatal("no corpus")
	}
	secret := regexp.MustCompile(`(?i)[^\n]*(?:planted|cGxhbnRlZ|81748201748)[^\n]*`)
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text := []byte(testkit.Read(t, name))
			format := formatOf(name)
			got, _ := redacted(t, text, Standard, format)
			for _, leak := range secret.FindAllString(got, -1) {
				t.Errorf("leaked: %s", leak)
			}
			equal(t, "what is kept of "+got, bytes.Count(text, []byte("kept")), strings.Count(got, "kept"))
			if was, is := bytes.Count(text, []byte("\n")), strings.Count(got, "\n"); was != is && format != YAML {
				t.Errorf("%d lines of %d:\n%s", is, was, got)
			}
			var v any
			if format == YAML {
				if err := yaml.Unmarshal([]byte(got), &v); err != nil {
					t.Errorf("no YAML: %v\n%s", err, got)
				}
			}
			for dec := json.NewDecoder(strings.NewReader(got)); format == JSON && dec.More(); {
				if err := dec.Decode(&v); err != nil {
					t.Fatalf("no JSON: %v\n%s", err, got)
				}
			}
			if filepath.Ext(name) == ".toml" && regexp.MustCompile(`= *\[redacted`).MatchString(got) {
				t.Errorf("no TOML: %s", got)
			}
			again, n := redacted(t, []byte(got), Standard, format)
			if n != 0 {
				t.Errorf("a second pass removes %d: %s", n, cmp.Diff(got, again))
			}
		})
	}
}

// TestOrdinary copies text that only resembles secrets.
func TestOrdinary(t *testing.T) {
	text := testkit.Read(t, "testdata/ordinary.txt")
	for line := range strings.Lines(text) {
		got, _ := redacted(t, []byte(line), Standard, Text)
		equal(t, "text", line, got)
		document, err := json.Marshal(map[string]string{"message": line})
		must(t, err)
		got, _ = redacted(t, document, Standard, JSON)
		equal(t, "JSON", string(document), got)
	}
	got, _ := redacted(t, []byte(text), Standard, Text)
	equal(t, "the whole text", text, got)
}

// TestRules plants the examples of all rules: in text, in strings of JSON, on both sides of where a piece ends.
func TestRules(t *testing.T) {
	filler := strings.Repeat("an ordinary line, of a log that has no secret in it\n", pieceSize/40)
	for _, rule := range Rules {
		if len(rule.Examples) == 0 || rule.For == "" {
			t.Errorf("%s: no example", rule.ID)
		}
		level := Standard
		if rule.Strict {
			level = Strict
		}
		for i, example := range rule.Examples {
			got, n := New(level, nil).String(example)
			if planted(got) || n == 0 || !strings.Contains(got, "[redacted:"+rule.ID+"]") {
				t.Errorf("%s: %d of %s: %s", rule.ID, n, example, got)
			}
			document, _ := json.Marshal(map[string]any{"a": example, "b": []string{"x\n" + example + "\ny"}})
			toml := rule.ID == "toml-header" // which is in no JSON
			if got, _ := redacted(t, document, level, JSON); !json.Valid([]byte(got)) || planted(got) && !toml {
				t.Errorf("%s in JSON: %s", rule.ID, got)
			}
			deep, _ := json.Marshal(map[string]any{"a": string(document)})
			if got, _ := redacted(t, deep, level, JSON); !json.Valid([]byte(got)) || planted(got) && !toml {
				t.Errorf("%s in JSON in JSON: %s", rule.ID, got)
			}
			if i > 0 {
				continue // one example of each is enough at the edges
			}
			for _, edge := range []int{pieceSize - len(example)/2, pieceSize} {
				text := filler[:edge-1] + "\n" + example + "\n" + filler[:pieceSize/4]
				got, _ := redacted(t, []byte(text), level, Text)
				if planted(got) || strings.Count(got, "\n") != strings.Count(text, "\n") {
					t.Errorf("%s: leaked where a piece ends", rule.ID)
				}
			}
		}
	}
}

// TestDocumented wants each rule in docs/redaction.md, as the table there says it.
func TestDocumented(t *testing.T) {
	var want, got []string
	for _, rule := range Rules {
		level := "standard"
		if rule.Strict {
			level = "strict"
		}
		want = append(want, "| `"+rule.ID+"` | "+level+" | "+rule.For+" |\n")
	}
	for line := range strings.Lines(testkit.Read(t, "../../docs/redaction.md")) {
		if strings.HasPrefix(line, "| `") {
			got = append(got, line)
		}
	}
	equal(t, "rules", want, got)
}

// TestLongSecrets removes secrets that are longer than one read.
func TestLongSecrets(t *testing.T) {
	const begin, end = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
	long := strings.Repeat("planted", 1<<17)
	body := strings.Repeat(strings.Repeat("planted+", 8)+"\n", 1<<14)
	for _, c := range []struct {
		format         Format
		in, head, tail string
	}{
		{Text, "a password=" + long + " b\nc\n", "a password=[redacted:password]", " b\nc\n"},
		{Text, `a {\"token\":\"` + long + `\"} b`, `a {\"token\":\"[redacted:token]`, `\"} b`},
		{Text, "a eyJhbGciOiJ9.eyJplanted." + long + " b", "a [redacted:jwt]", " b"},
		{Text, begin + "\n" + body + end + "\nb\n", "[redacted:private-key]\n", "\nb\n"},
		{Text, "a " + begin + "\\n" + long + "\\n" + end + "\\n b\n", "a [redacted:private-key]", "\\n b\n"},
		{JSON, `{"password":"` + long + `","b":1}`, `{"password":"[redacted:password]"`, `,"b":1}`},
		{JSON, `{"a":"x password=` + long + `","b":1}`, `{"a":"x password=[redacted:password]"`, `,"b":1}`},
		{JSON, `{"env":["` + long + `"],"b":1}`, `{"env":["[redacted:env]"]`, `,"b":1}`},
		{JSON, `{"a":1,"token":"` + long, `{"a":1,"token":"[redacted:token]`, ``},
		{JSON, `{"password":"` + long + long + `","b":1}`, `{"password":"[redacted:password]"`, `,"b":1}`},
		{Text, strings.Repeat("x", 5<<20) + " token=planted b", "x", "x token=[redacted:token] b"},
	} {
		got, n := redacted(t, []byte(c.in), Standard, c.format)
		if planted(got) || n != 1 || !strings.HasPrefix(got, c.head) || !strings.HasSuffix(got, c.tail) ||
			strings.Count(got, "\n") != strings.Count(c.in, "\n") {
			t.Errorf("%s: %d, %.120q ... %q", c.head, n, got, got[max(0, len(got)-60):])
		}
	}
}

// TestYAML parses YAML. What is not valid is replaced by the reason, which names no secret.
func TestYAML(t *testing.T) {
	for in, want := range map[string]string{
		"b: 1 # x\na:\n  password: |\n    planted\n    planted\n": "a:\n  password: '[redacted:password]'\nb: 1\n",
		"a: 1\nb: [planted\nc: d\n": "# [redacted:yaml]: " +
			"yaml: line 2: did not find expected ',' or ']'\n",
		"a: " + strings.Repeat("x", 3<<20): "# [redacted:yaml]: it has more than 2 MiB\n",
		"":                                 "null\n",
	} {
		got, _ := redacted(t, []byte(in), Standard, YAML)
		equal(t, in, want, got)
	}
}

func planted(s string) bool { return strings.Contains(strings.ToLower(s), "planted") }

// TestStrict replaces names and addresses by pseudonyms that are the same in all texts of one Redactor.
func TestStrict(t *testing.T) {
	r := New(Strict, []string{
		"host=node-7.example.com", "ns=payments", "pod=ledger-db-0", "container=app", "container=kubelet",
		"image=registry.example.com/team/ledger:1.2", "billing", "frontend",
	})
	cases := testkit.Read(t, "testdata/strict.txt")
	pairs := regexp.MustCompile(`(?m)^(\w+): (.*)\n-> (.*)$`).FindAllStringSubmatch(cases, -1)
	if 2*len(pairs) != strings.Count(cases, "\n") {
		t.Fatal("not all lines of testdata/strict.txt are pairs")
	}
	for _, c := range pairs {
		format, in, want := Format(c[1]), strings.ReplaceAll(c[2], "⏎", "\n"), strings.ReplaceAll(c[3], "⏎", "\n")
		var b strings.Builder
		_, err := r.Copy(&b, strings.NewReader(in), format)
		must(t, err)
		equal(t, c[2], want, b.String())
		if again, n := r.String(b.String()); n != 0 {
			t.Errorf("a second pass removes %d: %s", n, again)
		}
	}
}

func FuzzCopy(f *testing.F) {
	files, _ := filepath.Glob("testdata/corpus/*")
	for i, name := range append(files, "testdata/ordinary.txt") {
		f.Add([]byte(testkit.Read(f, name)), []byte("x"), uint(i), uint(i))
	}
	f.Fuzz(func(t *testing.T, head, tail []byte, rule, size uint) {
		for _, level := range []Level{Standard, Strict} {
			for _, format := range []Format{Text, JSON, YAML} {
				got, _ := redacted(t, head, level, format)
				if json.Valid(head) && format == JSON && !json.Valid([]byte(got)) {
					t.Errorf("no JSON any more: %s", got)
				}
				if bytes.Count(head, []byte("\n")) != strings.Count(got, "\n") && format != YAML {
					t.Errorf("other lines: %q", got)
				}
			}
		}
		examples := Rules[rule%uint(len(Rules))].Examples
		example := examples[size%uint(len(examples))]
		if planted(string(head)+string(tail)) || Rules[rule%uint(len(Rules))].Strict {
			return
		}
		if bytes.ContainsAny(head, "\"'`[{") || bytes.Contains(head, []byte("-----")) {
			return // what begins before the secret may end in it
		}
		text := string(head) + "\n" + example + "\n" + string(tail)
		var b strings.Builder
		_, err := New(Standard, nil).Copy(&b, iotest.OneByteReader(strings.NewReader(text)), Text)
		if err != nil || planted(b.String()) {
			t.Errorf("%v %q", err, b.String())
		}
		if doc, err := json.Marshal([]string{string(head), example, string(tail)}); err == nil {
			if got, _ := redacted(t, doc, Standard, JSON); planted(got) || !json.Valid([]byte(got)) {
				t.Errorf("%s", got)
			}
		}
	})
}

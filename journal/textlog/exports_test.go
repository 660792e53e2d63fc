package textlog

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What a table, a list of JSON or a page makes of two skip lines.
const (
	skip1 = `E0703 19:59:01.292918 7 kubelet.go:2448] "Skipping pod synchronization" err="PLEG is not healthy: pleg was last seen active 3m1.5s ago; threshold is 3m0s"`
	skip2 = `E0703 19:59:06.292918 7 kubelet.go:2448] "Skipping pod synchronization" err="PLEG is not healthy: pleg was last seen active 3m6.5s ago; threshold is 3m0s"`
)

func doubled(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
func escaped(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }

func body(s string) string { return strings.ReplaceAll(s, `"`, `\"`) }

func conditionOf(age string) string {
	return `{"lastHeartbeatTime": "2023-07-03T19:59:01Z", "message": "PLEG is not healthy: pleg was last seen active ` + age + ` ago; threshold is 3m0s", "reason": "KubeletNotReady", "status": "False", "type": "Ready"}`
}

// indented writes JSON as kubectl does, a member or bracket to a line.
func indented(json string) string {
	return strings.NewReplacer("{", "{\n  ", "[", "[\n  ", "}", "\n}", "]", "\n]", ", ", ",\n  ").Replace(json) + "\n"
}

func TestExports(t *testing.T) {
	const memory = `{"lastHeartbeatTime": "2023-07-03T19:59:01Z", "message": "kubelet has sufficient memory", "type": "MemoryPressure"}`
	node := func(name, age string) string {
		return `{"kind": "Node", "metadata": {"labels": {"a": "b"}, "name": "` + name + `"}, "status": {"conditions": [` + memory + `, ` + conditionOf(age) + `]}}`
	}
	const yamlNode = "- apiVersion: v1\n  kind: Node\n  metadata:\n    labels:\n      name: no\n    name: %\n  status:\n    conditions:\n" +
		"    - lastHeartbeatTime: \"2023-07-03T19:59:01Z\"\n      message: kubelet has sufficient memory\n      type: MemoryPressure\n" +
		"    - lastHeartbeatTime: \"2023-07-03T19:59:01Z\"\n      message: '[container runtime is down, PLEG is not\n        healthy: pleg was last seen active\n        3m1.5s ago; threshold is 3m0s]'\n" +
		"      reason: KubeletNotReady\n      status: \"False\"\n    images:\n    - names: x\n"
	pair := `[["1688414341292918024", ` + escaped(skip1) + `], ["1688414346292918024", ` + escaped(skip2) + `]]`
	tests := map[string]struct {
		in     string
		zone   bool // the outer stamp says it all
		hosts  string
		format string
	}{
		"CloudWatch's table": {in: "@timestamp,@message\n2023-07-03 19:59:01.292," + doubled(skip1) + "\n2023-07-03 19:59:06.292," + doubled(skip2) + "\n", zone: true, format: "csv+klog"},
		"Kibana's table":     {in: "\"@timestamp\",message\n\"Jul 3, 2023 @ 19:59:01.292\"," + doubled(skip1) + "\n\"Jul 3, 2023 @ 19:59:06.292\"," + doubled(skip2) + "\n", format: "csv+klog"},
		"Grafana's table":    {in: "\"Time\";\"labels\";\"Line\"\n\"2023-07-03T19:59:01.292Z\";" + doubled(`{"unit":"a"}`) + ";" + doubled(skip1) + "\n\"2023-07-03T19:59:06.292Z\";\"\";" + doubled(skip2) + "\n", zone: true, format: "csv+klog"},
		"Loki's table":       {in: "tsNs,line,id\n1688414341292918024," + doubled(skip1) + ",1\n1688414346292918024," + doubled(skip2) + ",2\n", zone: true, format: "csv+klog"},
		"Azure's table": {
			in:   "\"TimeGenerated [UTC]\",Computer,SyslogMessage\n\"7/3/2023, 7:59:01.292 PM\",\"a-1\"," + doubled(skip1) + "\n\"7/3/2023, 7:59:06.292 PM\",\"a-1\"," + doubled(skip2) + "\n",
			zone: true, hosts: "a-1 a-1", format: "csv+klog",
		},
		"no time in front":       {in: "n1," + doubled(skip1) + "\nn1," + doubled(skip2) + "\n", format: "text+klog"},
		"a list in one line":     {in: `[{"timestamp": "2023-07-03T19:59:01.292Z", "message": ` + escaped(skip1) + `}, {"timestamp": "2023-07-03T19:59:06.292Z", "message": ` + escaped(skip2) + `}]`, zone: true, format: "json+klog"},
		"a list with counts":     {in: indented(`{"events": [{"timestamp": 1688414341292, "message": ` + escaped(skip1) + `}, {"timestamp": 1688414346292, "message": ` + escaped(skip2) + `}], "more": []}`), zone: true, format: "json+klog"},
		"Elasticsearch's hits":   {in: `{"hits": {"total": 2, "hits": [{"_id": "0", "_source": {"@timestamp": "2023-07-03T19:59:01.292Z", "message": ` + escaped(skip1) + `, "host": {"name": "n1"}}}, {"_id": "1", "_source": {"message": ` + escaped(skip2) + `, "@timestamp": "2023-07-03T19:59:06.292Z", "host": {"name": "n2"}}}]}}`, zone: true, hosts: "n1 n2", format: "json+klog"},
		"Loki's streams":         {in: `{"status": "success", "data": {"result": [{"stream": {"unit": "a"}, "values": ` + pair + `}]}}`, zone: true, format: "json+klog"},
		"members without braces": {in: "    \"message\": " + escaped(skip1) + ",\n    \"message\": " + escaped(skip2) + ",\n", format: "quoted+klog"},
		"Ansible's result":       {in: `n | 2023-07-03 19:59:09,201 p=8 | fatal: [n]: FAILED! => {"changed": true, "cmd": "` + strings.Repeat("x", 200) + `", "stdout": "` + body(skip1) + `\n` + body(skip2) + `"}`, format: "text+klog"},
		"two nodes in a line":    {in: `{"items": [` + node("n1", "3m1.5s") + `, ` + node("n2", "3m6.5s") + `]}`, zone: true, hosts: "n1 n2", format: "json"},
		"two nodes indented":     {in: indented(`{"items": [` + node("n1", "3m1.5s") + `, ` + node("n2", "3m6.5s") + `]}`), zone: true, hosts: "n1 n2", format: "json"},
		"two nodes in YAML":      {in: "items:\n" + strings.Replace(yamlNode, "%", "n1", 1) + strings.Replace(yamlNode, "%", "n2", 1), zone: true, hosts: "n1 n2", format: "yaml"},
		"folded, no beginning":   {in: "E kubelet.go:2646 \"Skipping\"\n  err=\"[PLEG is not healthy: pleg was last seen\n       active 3m1.5s ago; threshold is 3m0s]\"\nprose\n  - PLEG is not\n    healthy: pleg was last seen active 3m6.5s ago; threshold is 3m0s\n", format: "bare"},
		"rsyslog's colours":      {in: "#033[31m" + skip1 + "#033[0m\n#033[1m" + strings.Replace(skip2, "PLEG is", "PLEG #033[1;31mis", 1) + "\n", format: "klog"},
		"escaped colours":        {in: `{"message": "\u001b[31m` + body(skip1) + "\"}\n" + `\x1b[31m` + strings.Replace(skip2, "not healthy", `\x1b[1mnot\x1b[0m healthy`, 1) + "\\033[0m\n", format: "json+klog"},
		"a page's source":        {in: "&lt;13&gt;" + strings.ReplaceAll(skip1, `"`, "&quot;") + "\n&lt;13&gt;" + strings.ReplaceAll(skip2, `"`, "&quot;") + "\n", format: "klog"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for reader, opts := range readers() {
				if got, _ := count(t, strings.NewReader(tt.in), opts); got.PLEG != 2 && opts.Next != nil || got.Ages != 2 && opts.Next != nil {
					t.Errorf("%s: %+v", reader, got)
				}
			}
			var hosts []string
			st, err := Scan(context.Background(), strings.NewReader(tt.in), Options{Next: index, Longest: len(needle)}, func(r *Record) bool {
				hosts = append(hosts, r.Host)
				when, ok := r.Outer.Instant()
				if want := time.Date(2023, 7, 3, 19, 59, 1, 0, time.UTC); ok != tt.zone || ok && when.Sub(want).Truncate(time.Second)%(5*time.Second) != 0 {
					t.Errorf("outer stamp %v %v, want %v", when, ok, want)
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(strings.Join(hosts, " ")); got != tt.hosts || st.Format != tt.format {
				t.Errorf("hosts %q, format %s", got, st.Format)
			}
			whole, _ := readAll(t, []byte(tt.in), Options{Next: index, Longest: len(needle), All: true}, false)
			cut, _ := readAll(t, []byte(tt.in), Options{Next: index, Longest: len(needle), All: true}, true)
			if diff := cmp.Diff(whole, cut); diff != "" {
				t.Errorf("the chunks of the reader matter:\n%s", diff)
			}
		})
	}
}

// TestTornJSON wants what follows an object that was cut, and an object that was wrapped, whole.
func TestTornJSON(t *testing.T) {
	object := `{"ts":1688414341292.9,"caller":"kubelet/kubelet.go:2448","msg":"Skipping pod synchronization","err":"PLEG is not healthy: x","note":"` + skip1[:80]
	plain := strings.ReplaceAll(skip2, `"`, "")
	for name, tt := range map[string]struct {
		in      string
		records int
		pleg    int
	}{
		"klog behind it":       {object + "\n" + skip2 + "\n" + plain + "\n" + skip2 + "\n", 4, 4},
		"other objects behind": {object + "\n" + `{"msg":"PLEG is not healthy: y","ts":1688414346292.9}` + "\n" + skip2 + "\n", 3, 3},
		"syslog behind it":     {object + "\nJul  3 19:59:06 h kubelet[7]: " + plain + "\nJul  3 19:59:07 h kubelet[7]: x\n", 3, 2},
		"a wrapped one":        {`{"time":"2023-07-03T19:59:06Z","message":"` + "\n" + plain + "\n\"}\n" + skip2 + "\n", 2, 2},
		"nothing behind it":    {object, 1, 1},
		"a list that was cut":  {`[{"message":"PLEG is not healthy: x"},{"mess` + "\n" + skip2 + "\n" + skip2 + "\n", 3, 3},
	} {
		for _, opts := range []Options{{All: true, Next: index, Longest: len(needle)}, {Next: index, Longest: len(needle)}} {
			got, st := count(t, strings.NewReader(tt.in), opts)
			if got.PLEG != tt.pleg || opts.All && got.Records != tt.records || st.Records != int64(tt.records) {
				t.Errorf("%s: %+v, %d records, want %d", name, got, st.Records, tt.records)
			}
		}
	}
}

func TestWrittenTime(t *testing.T) {
	for in, want := range map[string]string{
		"2023-07-03 19:59:01 UTC": "2023-07-03T19:59:01Z", "1688414341": "2023-07-03T19:59:01Z", "Jul 3, 2023, 7:59:01 PM": "2023-07-03T19:59:01Z",
		"13/7/2023, 12:59:01 AM": "2023-07-13T00:59:01Z", "7/3/2023, 12:59:01 PM": "2023-07-03T12:59:01Z",
		"7/3/2023, 13:59:01 PM extra": "", "Foo 3, 2023 @ 19:59:01": "", "12345": "", "2023": "", "99/99/2023, 10:00:00": "", "1688414341x": "",
	} {
		s, ok := writtenTime(in)
		got := time.UnixMicro(s.Micros).UTC().Format(time.RFC3339)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s %v, want %s", in, got, ok, want)
		}
	}
}

func TestStripColour(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[31ma\x1b[0m": "a", "#033[1;31ma#033[K": "a", `\x1b[31ma\\u001b[0m"`: `a"`, `\\\e[1mb`: "b", `issue #033[draft]`: `issue #033[draft]`,
		`C:\x1b[list]`: `C:\x1b[list]`, `a\\b\"`: `a\\b\"`, "a\x1b": "a", `#`: `#`,
	} {
		if got := string(stripColour([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if want != in && !coloured([]byte(in)) {
			t.Errorf("%q is not seen", in)
		}
	}
	if bytes.Contains(unmarked([]byte(`a "b" &quot;`)), []byte(`b" "`)) {
		t.Error("an entity in plain text is taken for a page's")
	}
}

package redact

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"testing"
)

func BenchmarkCopy(b *testing.B) {
	log, err := os.ReadFile("testdata/speed.log")
	if err != nil {
		b.Fatal(err)
	}
	text := bytes.Repeat(log, 16<<20/len(log))
	document, err := json.Marshal(map[string]string{"message": string(log), "name": "app"})
	if err != nil {
		b.Fatal(err)
	}
	one, err := json.Marshal(string(text))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		level  Level
		format Format
		text   []byte
	}{
		{"text", Standard, Text, text},
		{"json", Standard, JSON, bytes.Repeat(append(document, '\n'), 16<<20/len(document))},
		{"one-string", Standard, JSON, one},
		{"text-strict", Strict, Text, text},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := New(c.level, nil).Copy(io.Discard, bytes.NewReader(c.text), c.format); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

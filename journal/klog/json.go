package klog

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// A Message is a text with key and value pairs.
type Message struct {
	Text  string
	Pairs []Pair // in the order in which they were written
}

// A Pair is a key and its value: strings without quotes and escapes, anything else as written.
type Pair struct{ Key, Value string }

// Get returns the value of a key; of several, the last, as klog does.
func (m Message) Get(key string) (string, bool) {
	for i := len(m.Pairs) - 1; i >= 0; i-- {
		if m.Pairs[i].Key == key {
			return m.Pairs[i].Value, true
		}
	}
	return "", false
}

// ParseJSON parses a line of klog's JSON format:
// {"ts":1757010283211.4668,"caller":"kubelet/kubelet.go:2460","msg":"...",...}. ts counts milliseconds; documentation
// shows seconds, and values too small for milliseconds are taken as such, those too large as micro- or nanoseconds.
// Other loggers of the same library write it as text. Objects and arrays become one pair each, as compact JSON; an
// object with just a name and a namespace becomes namespace/name. ok is false for JSON that has no msg, or neither a
// time nor a caller.
func ParseJSON(b []byte) (h Header, m Message, ok bool) {
	fields, _, ok := ParseObject(b)
	if !ok {
		return Header{}, Message{}, false
	}
	text, origin := false, false
	for _, f := range fields {
		switch f.Key {
		case "msg":
			m.Text, text = f.Value, f.Kind == '"'
		case "ts":
			h.Stamp = parseTS(f)
			origin = origin || h.Stamp.Known
		case "caller":
			origin = true
		case "level":
		default:
			m.Pairs = append(m.Pairs, Pair{f.Key, plain(f)})
		}
	}
	return h, m, text && origin
}

func parseTS(f Field) Stamp {
	if f.Kind == '"' {
		s, _, _ := ParseISO([]byte(f.Value))
		return s
	}
	s, _ := ParseEpoch(f.Value)
	return s
}

// ParseEpoch parses a number that counts from 1970 in seconds, milli-, micro- or nanoseconds, which its size tells
// apart, with decimals or without.
func ParseEpoch(number string) (s Stamp, ok bool) {
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(v) || v <= 0 || v >= 1e19 {
		return Stamp{}, false
	}
	// Each limit is the year 5138 in the coarser unit and 1973 in the finer one.
	switch {
	case v < 1e11:
		v *= 1e6
	case v < 1e14:
		v *= 1e3
	case v >= 1e17:
		v /= 1e3
	}
	return Stamp{Micros: int64(math.Round(v)), Known: true, Year: true, Zone: true}, true
}

// plain returns a value as one text.
func plain(f Field) string {
	if f.Kind == '{' {
		if ref, ok := reference(f.Value); ok {
			return ref
		}
	}
	if f.Kind == '{' || f.Kind == '[' {
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(f.Value)) == nil {
			return compact.String()
		}
	}
	return f.Value
}

// reference returns the namespace/name of an object that has nothing else, as klog.KObj writes it.
func reference(object string) (ref string, ok bool) {
	var name, namespace string
	members, _, _ := ParseObject([]byte(object))
	for _, m := range members {
		switch {
		case m.Key == "name" && m.Kind == '"':
			name = m.Value
		case m.Key == "namespace" && m.Kind == '"':
			namespace = m.Value
		default:
			return "", false
		}
	}
	if namespace == "" {
		return name, name != ""
	}
	return namespace + "/" + name, name != ""
}

package textlog

import (
	"bytes"
	"math"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
)

// firstCount is the smallest count of µs since 1970 that is taken for a time, in September 2001.
const firstCount = 1_000_000_000_000_000

// writtenTime parses a time that stands alone, in a member of JSON or a column: ISO 8601, a count since 1970, or a
// date as web pages print it. The month comes first unless it cannot.
func writtenTime(text string) (klog.Stamp, bool) {
	b := []byte(strings.TrimSpace(text))
	if s, rest, ok := klog.ParseISO(b); ok {
		if word, more := cut(trimBlanks(rest)); string(word) == "UTC" && len(more) == 0 {
			s.Zone = true
		}
		return s, true
	}
	if len(b) >= 10 && len(b) <= 20 && digit(b[0]) && len(bytes.Trim(b, "0123456789.")) == 0 {
		s, ok := klog.ParseEpoch(string(b))
		return s, ok && s.Micros >= firstCount
	}
	return parseDate(string(b),
		"Jan 2, 2006 @ 15:04:05", "Jan 2, 2006, 3:04:05 PM", "Jan 2, 2006, 15:04:05", // Kibana
		"1/2/2006, 3:04:05 PM", "1/2/2006, 15:04:05", "2/1/2006, 3:04:05 PM", "2/1/2006, 15:04:05") // the portal of Azure
}

// parseDate parses a date in the first of the layouts of package time that fits. The seconds may have decimals.
func parseDate(text string, layouts ...string) (klog.Stamp, bool) {
	for _, layout := range layouts {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		s := klog.Stamp{Known: true, Year: t.Year() >= 1970, Zone: strings.HasSuffix(layout, "-0700")}
		if _, offset := t.Zone(); s.Zone {
			s.Offset = int32(offset)
		}
		if t.Year() == 0 { // the layout has no year
			t = t.AddDate(klog.BaseYear, 0, 0)
		}
		s.Micros = t.UnixMicro() + int64(s.Offset)*1e6
		return s, s.Year || t.Year() == klog.BaseYear
	}
	return klog.Stamp{}, false
}

// parseMonthDay parses "Jul  3 19:59:01.293068", as syslog and journalctl write it, also with a year behind the day. A
// month in a language that is not known makes a stamp that is not Known.
func parseMonthDay(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	n := bytes.IndexByte(b[:min(len(b), 25)], ' ')
	if n < 2 {
		return s, nil, false
	}
	day, rest, ok := number(bytes.TrimLeft(b[n:], " "))
	if !ok || day < 1 || day > 31 || len(rest) < 9 || rest[0] != ' ' {
		return s, nil, false
	}
	rest = rest[1:]
	year := klog.BaseYear
	if y, after, ok := number(rest); ok && y >= 1970 && y < 10000 && len(after) > 8 && after[0] == ' ' {
		s.Year, year, rest = true, y, after[1:]
	}
	clock, rest, ok := klog.Clock(rest)
	if !ok || (len(rest) > 0 && rest[0] != ' ' && rest[0] != ':') {
		return s, nil, false
	}
	m := month(b[:n])
	if m == 0 && bytes.ContainsAny(b[:n], "0123456789:=[]{}()\"/") {
		return s, nil, false
	}
	if m > 0 {
		s.Known, s.Micros = true, klog.Date(year, m, day)+clock
	}
	return s, trimBlanks(bytes.TrimPrefix(rest, []byte(":"))), true
}

// month returns the number of the name of a month, 0 if it is none. Names are those of the locales that journalctl is
// seen in, as strftime's %b writes them; Chinese, Japanese and Korean count the months, as in "9月".
func month(b []byte) int {
	const english = "JanFebMarAprMayJunJulAugSepOctNovDec"
	if i := strings.Index(english, string(b)); len(b) == 3 && i >= 0 && i%3 == 0 {
		return i/3 + 1
	}
	for _, sign := range [...]string{"月", "월"} {
		if n, ok := bytes.CutSuffix(b, []byte(sign)); ok {
			if v, rest, ok := number(n); ok && len(rest) == 0 && v >= 1 && v <= 12 {
				return v
			}
		}
	}
	name := strings.TrimSuffix(strings.ToLower(string(b)), ".")
	for _, list := range monthNames {
		for i, m := range strings.Fields(list) {
			if m == name {
				return i + 1
			}
		}
	}
	return 0
}

// monthNames are the abbreviated months of languages, without dots and in lower case.
var monthNames = [...]string{
	"jan feb mar apr may jun jul aug sep oct nov dec",
	"jan feb mär apr mai jun jul aug sep okt nov dez",
	"jänner feber märz april mai juni juli august sept okt nov dez",
	"janv févr mars avril mai juin juil août sept oct nov déc",
	"ene feb mar abr may jun jul ago sep oct nov dic",
	"gen feb mar apr mag giu lug ago set ott nov dic",
	"jan fev mar abr mai jun jul ago set out nov dez",
	"jan feb mrt apr mei jun jul aug sep okt nov dec",
	"jan feb mars april maj juni juli aug sept okt nov des",
	"sty lut mar kwi maj cze lip sie wrz paź lis gru",
	"led úno bře dub kvě čen čec srp zář říj lis pro",
	"янв фев мар апр май июн июл авг сен окт ноя дек",
	"янв фев мар апр мая июн июл авг сент окт нояб дек",
	"січ лют бер кві тра чер лип сер вер жов лис гру",
	"oca şub mar nis may haz tem ağu eyl eki kas ara",
	"jan febr márc ápr máj jún júl aug szept okt nov dec",
	"tammi helmi maalis huhti touko kesä heinä elo syys loka marras joulu",
}

// parseWeekday parses "Mon 2023-07-03 19:59:01.293068 CST", as journalctl -o short-full and its heads write it.
func parseWeekday(b []byte) (s klog.Stamp, zone string, rest []byte, ok bool) {
	n := bytes.IndexByte(b[:min(len(b), 20)], ' ')
	if n < 1 || bytes.ContainsAny(b[:n], "0123456789:[]{}\"=") {
		return s, "", nil, false
	}
	s, rest, ok = klog.ParseISO(b[n+1:])
	if !ok || s.Zone || len(rest) == 0 || rest[0] != ' ' {
		return s, "", nil, false
	}
	end := bytes.IndexAny(rest[1:], " ,;")
	if end < 0 {
		end = len(rest) - 1
	}
	zone = strings.TrimSuffix(string(rest[1:1+end]), ".")
	offset, left, known := klog.ParseOffset([]byte(zone))
	switch {
	case zone == "UTC" || zone == "GMT":
		s.Zone = true
	case known && len(left) == 0:
		s.Zone, s.Offset = true, offset
	case zone == "" || len(zone) > 6 || strings.ContainsAny(zone, "[]:=\""):
		return s, "", trimBlanks(rest), true
	}
	return s, zone, trimBlanks(rest[1+end:]), true
}

// parseUnix parses "1688385541.293068 ", as journalctl -o short-unix writes it.
func parseUnix(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	sec, rest, ok := number(b)
	if !ok || len(b)-len(rest) < 9 || len(b)-len(rest) > 10 || len(rest) < 8 || rest[0] != '.' {
		return s, nil, false
	}
	frac, after, ok := number(rest[1:])
	if !ok || len(rest)-1-len(after) != 6 || len(after) == 0 || after[0] != ' ' {
		return s, nil, false
	}
	return klog.Stamp{Micros: int64(sec)*1e6 + int64(frac), Known: true, Year: true, Zone: true}, after[1:], true
}

// parseBracket parses what dmesg and journalctl -o short-monotonic put in brackets: "[  123.456789] ",
// "[    1.001000 <    0.5>] ", "[Mon Nov 21 04:50:00 2026] ", "[Nov21 04:50] ", "[  +0.000123] ".
func parseBracket(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	if len(b) < 4 || b[0] != '[' {
		return s, nil, false
	}
	end := bytes.IndexByte(b[:min(len(b), 48)], ']')
	if end < 0 {
		return s, nil, false
	}
	in, rest := trimBlanks(b[1:end]), b[end+1:]
	if len(rest) > 0 && rest[0] == ' ' {
		rest = rest[1:]
	}
	if sec, after, ok := number(in); ok && len(after) > 1 && after[0] == '.' {
		frac, tail, ok := number(after[1:])
		digits := len(after) - 1 - len(tail)
		if !ok || (digits != 3 && digits != 6) || sec > math.MaxInt32 || (len(tail) > 0 && tail[0] != ' ' && tail[0] != '<') {
			return s, nil, false
		}
		if digits == 3 {
			frac *= 1000
		}
		return klog.Stamp{Micros: int64(sec)*1e6 + int64(frac), Known: true, Monotonic: true}, rest, true
	}
	if s, ok := parseDate(string(in), "Mon Jan _2 15:04:05 2006", "Jan_2 15:04"); ok {
		return s, rest, true
	}
	if len(in) > 2 && in[0] == '+' && digit(in[1]) && bytes.IndexByte(in, '.') > 0 {
		return s, rest, true
	}
	return s, nil, false
}

func trimBlanks(b []byte) []byte { return bytes.TrimLeft(b, " \t") }

func digit(c byte) bool { return c >= '0' && c <= '9' }

// number parses leading decimal digits, at most 18.
func number(b []byte) (n int, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && digit(b[i]); i++ {
		if i == 18 || n > math.MaxInt/10-1 { // the second where an int has 32 bits
			return 0, nil, false
		}
		n = n*10 + int(b[i]-'0')
	}
	return n, b[i:], i > 0
}

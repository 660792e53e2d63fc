package journal

import "time"

// An ErrorGroup is a group of error and warning records of one daemon that differ only in their variable parts:
// numbers, ids, names, times. Records that a healthy daemon writes too are in none.
type ErrorGroup struct {
	Lane     string     `json:"lane"`           // kubelet or runtime
	Unit     string     `json:"unit,omitempty"` // of systemd, or the daemon's name, where the source knows it
	Template string     `json:"template"`       // the text that they share, with <*> for each variable part
	Example  string     `json:"example"`        // the newest record, cleaned of control characters and cut
	Code     string     `json:"code,omitempty"` // the signature of the catalogue that matches it, if one does
	Count    int64      `json:"count"`
	First    *time.Time `json:"first,omitempty"`
	Last     *time.Time `json:"last,omitempty"`
	Pods     []string   `json:"pods,omitempty"` // namespace/name of the pods that they name; bounded
}

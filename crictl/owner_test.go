package crictl

import "testing"

// TestOwnerOf derives owners from the labels that controllers set.
func TestOwnerOf(t *testing.T) {
	for _, tt := range []struct {
		pod, hash, job, set, revision string
		want                          Owner
	}{
		{pod: "web-84d6b9f7c-8nlpk", hash: "84d6b9f7c", want: Owner{"Deployment", "web"}},
		{pod: "sitemap-29384700-k5q2d", job: "sitemap-29384700", want: Owner{"CronJob", "sitemap"}},
		{pod: "migrate-3-k5q2d", job: "migrate-3", want: Owner{"Job", "migrate-3"}},
		{pod: "ledger-db-0", set: "ledger-db-0", revision: "ledger-db-5f7", want: Owner{"StatefulSet", "ledger-db"}},
		{pod: "ledger-db-7", revision: "5f7", want: Owner{"StatefulSet", "ledger-db"}},
		{pod: "calico-node-7wq9l", revision: "6f9", want: Owner{"DaemonSet", "calico-node"}},
		{pod: "etcd-node-7"},
	} {
		if got := ownerOf(tt.pod, tt.hash, tt.job, tt.set, tt.revision); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.pod, got, tt.want)
		}
	}
}

package volumemanager

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// TestTokenLife requests a token of one hour repeatedly: it is the same for 48 minutes, and then a new one.
func TestTokenLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.New()
		issued, down := 0, false
		client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
			if down {
				return true, nil, errors.New("the API server is down")
			}
			issued++
			return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
				Token: fmt.Sprint("token-", issued), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
			}}, nil
		})
		o := NewAPIObjects(client)
		start := time.Now()
		at := func(minute int, audience, want string) {
			t.Helper()
			time.Sleep(time.Until(start.Add(time.Duration(minute) * time.Minute)))
			spec := authenticationv1.TokenRequestSpec{Audiences: []string{audience}}
			got, err := o.ServiceAccountToken(t.Context(), "shop", "sa", &authenticationv1.TokenRequest{Spec: spec})
			if got != want || (err != nil) != (want == "") {
				t.Errorf("at minute %d: %q, %v, want %q", minute, got, err, want)
			}
		}
		at(0, "a", "token-1")
		at(47, "a", "token-1")
		at(49, "a", "token-2")
		at(50, "b", "token-3")
		down = true
		at(49+47, "a", "token-2")
		at(49+49, "a", "")
	})
}

func TestFileObjects(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "objects")
	o := NewFileObjects(dir)
	missing := func(namespace, name string) {
		t.Helper()
		if err := o.Get(t.Context(), namespace, name, &v1.ConfigMap{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s/%s: %v, want not found", namespace, name, err)
		}
	}
	looptest.Write(t, filepath.Join(dir, "all.yaml"), testdata(t, "two.yaml"))
	looptest.Write(t, filepath.Join(dir, ".hidden.yaml"), "kind: nonsense")
	looptest.Write(t, filepath.Join(dir, "notes.txt"), "kind: nonsense")
	missing("default", "settings")
	var s v1.Secret
	err := o.Get(t.Context(), "default", "key", &s)
	looptest.Must(t, err)
	looptest.Equal(t, "secret", map[string][]byte{"a": []byte("one"), "b": []byte("two")}, s.Data)
	var c v1.ConfigMap
	if err := o.Get(t.Context(), "shop", "settings", &c); err != nil || c.Data["mode"] != "fast" || len(c.BinaryData["blob"]) != 3 {
		t.Errorf("config map: %+v, %v", c, err)
	}
	var a v1.ServiceAccount
	if err := o.Get(t.Context(), "default", "clerk", &a); err != nil || len(a.ImagePullSecrets) != 1 {
		t.Errorf("service account: %+v, %v", a, err)
	}
}

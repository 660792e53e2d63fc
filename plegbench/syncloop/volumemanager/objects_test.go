package volumemanager

import (
	"errors"
	"fmt"
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
)

func TestAPIObjects(t *testing.T) {
	o := NewAPIObjects(fake.New(
		&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "key"}},
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}},
	))
	if s, err := o.Secret(t.Context(), "shop", "key"); err != nil || s.Name != "key" {
		t.Errorf("secret: %v, %v", s, err)
	}
	if c, err := o.ConfigMap(t.Context(), "shop", "settings"); err != nil || c.Name != "settings" {
		t.Errorf("config map: %v, %v", c, err)
	}
	if _, err := o.Secret(t.Context(), "shop", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("missing: %v, want not found", err)
	}
}

// TestTokenLife asks for a token of one hour again and again: it is the same for 48 minutes, then a new one, and the old one
// while no new one can be had, as long as it lasts.
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
			request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
			if got, err := o.ServiceAccountToken(t.Context(), "shop", "sa", request); got != want || (err != nil) != (want == "") {
				t.Errorf("at minute %d: %q, %v, want %q", minute, got, err, want)
			}
		}
		at(0, "a", "token-1")
		at(47, "a", "token-1")
		at(49, "a", "token-2")
		at(50, "b", "token-3")
		down = true
		at(49+55, "a", "token-2")
		at(49+61, "a", "")
		down = false
		at(49+62, "a", "token-4")
	})
}

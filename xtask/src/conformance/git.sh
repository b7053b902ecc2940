# Clones the project there, checks every object, repacks, and commits; the tree must be the one of a local clone.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
git clone --quiet "file://$ROOT" "$L/clone"
git clone --quiet "file://$ROOT" "$D/clone"
git -C "$D/clone" fsck --full --strict
diff -r --exclude=.git "$L/clone" "$D/clone"
[ -z "$(git -C "$D/clone" status --porcelain)" ]
cd "$D/clone"
git mv README.md moved.md
git -c user.name=test -c user.email=test@localhost commit --quiet --message moved
git gc --quiet --aggressive --prune=now
git checkout --quiet HEAD~1
git fsck --full --strict
[ -z "$(git status --porcelain)" ]
[ "$(git rev-parse 'HEAD^{tree}')" = "$(git -C "$L/clone" rev-parse 'HEAD^{tree}')" ]
